package http

import (
	"context"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pillarbox-dev/pillarbox/relay"
)

func discardLog() *log.Logger { return log.New(io.Discard, "", 0) }

// connectionCount counts a server's connections.
type connectionCount struct {
	mu   sync.Mutex
	all  int
	open map[net.Conn]bool
}

func newConnectionCount() *connectionCount { return &connectionCount{open: map[net.Conn]bool{}} }

func (c *connectionCount) note(connection net.Conn, state http.ConnState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch state {
	case http.StateNew:
		c.all++
		c.open[connection] = true
	case http.StateClosed, http.StateHijacked:
		delete(c.open, connection)
	}
}

func (c *connectionCount) opened() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.all
}

func (c *connectionCount) openNow() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.open)
}

// Connections are used again after every kind of answer, by as many deliveries as are under way, and let go at the end. No
// goroutine is left behind, also not by deliveries that ended badly.
func TestReuseAndLeaks(t *testing.T) {
	before := runtime.NumGoroutine()
	connections := newConnectionCount()
	var n atomic.Int64
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch n.Add(1) % 4 {
		case 0:
			w.WriteHeader(http.StatusNoContent)
		case 1:
			w.WriteHeader(http.StatusUnprocessableEntity)
			_, _ = io.WriteString(w, strings.Repeat("x", 60_000)) // longer than what is read, shorter than what is drained
		case 2:
			w.WriteHeader(http.StatusInternalServerError)
		case 3:
			_, _ = io.WriteString(w, strings.Repeat("x", 60_000))
		}
	}))
	server.Config.ConnState = connections.note
	server.Start()
	d := newDestination(t, server.URL)
	const goroutines = 40
	round := func() {
		var all sync.WaitGroup
		for range goroutines {
			all.Go(func() {
				for range 25 {
					deliver(t, d, newEvent())
				}
			})
		}
		all.Wait()
	}
	// The transport may dial for a delivery that then gets a connection that has become free: up to two each, at first.
	round()
	first := connections.opened()
	if first > 2*goroutines {
		t.Errorf("%d connections for %d goroutines", first, goroutines)
	}
	round()
	if n := connections.opened(); n != first {
		t.Errorf("%d connections more, although %d were idle", n-first, first)
	}
	// What is cut short or answered with too much costs its connection, and nothing else.
	hangs := make(chan struct{})
	bad := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if n.Add(1)%2 == 0 {
			<-hangs
		}
		_, _ = io.WriteString(w, strings.Repeat("x", 1<<20))
	}))
	other := newDestination(t, bad.URL)
	for range 20 {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
		deliverIn(ctx, t, other, newEvent())
		cancel()
	}
	close(hangs)
	d.Close()
	other.Close()
	eventually(t, "no connection is open", func() bool { return connections.openNow() == 0 })
	server.Close()
	bad.Close()
	eventually(t, "no goroutine is left", func() bool { return runtime.NumGoroutine() <= before })
}

func eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	for range 300 {
		if holds() {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	buffer := make([]byte, 1<<16)
	t.Fatalf("not within 3 s: %s\n%s", what, buffer[:runtime.Stack(buffer, true)])
}

// The environment's proxy is not used unless the configuration says so.
func TestProxy(t *testing.T) {
	var through atomic.Int32
	proxy := newServer(t, func(w http.ResponseWriter, r *http.Request) {
		through.Add(1)
		if r.Method == http.MethodConnect {
			w.WriteHeader(http.StatusProxyAuthRequired)
			return
		}
		if !r.URL.IsAbs() {
			t.Errorf("the proxy was asked for %s", r.URL)
		}
		w.WriteHeader(http.StatusAccepted)
	})
	t.Setenv("HTTP_PROXY", proxy.URL)
	t.Setenv("HTTPS_PROXY", proxy.URL)
	server := newServer(t, status(200))
	port := strings.TrimPrefix(server.URL, "http://127.0.0.1")
	// Go never sends loopback through the environment's proxy; a name that leads there it does not see through.
	same(t, deliver(t, newDestination(t, server.URL), newEvent()), relay.Outcome{Kind: relay.Published, Receipt: "200"})
	if n := through.Load(); n != 0 {
		t.Errorf("%d requests went through the environment's proxy", n)
	}
	explicit := newDestination(t, server.URL, func(c *Config) { c.Proxy = proxy.URL })
	same(t, deliver(t, explicit, newEvent()), relay.Outcome{Kind: relay.Published, Receipt: "202"})
	if problems := explicit.Check(t.Context()); len(problems) > 0 {
		t.Errorf("Check through the proxy: %v", problems)
	}
	refused := newDestination(t, "https://127.0.0.1"+port, func(c *Config) { c.Proxy = proxy.URL })
	same(t, deliver(t, refused, newEvent()), relay.Outcome{Kind: relay.Unavailable, Code: CodeEgress, Message: "407"})

	gone := newServer(t, status(200))
	gone.Close()
	for _, target := range []string{"http://127.0.0.1:1/", "https://127.0.0.1:1/"} {
		down := newDestination(t, target, func(c *Config) { c.Proxy = gone.URL })
		same(t, deliver(t, down, newEvent()), relay.Outcome{Kind: relay.Unavailable, Code: CodeDial, Message: "refused"})
		if problems := down.Check(t.Context()); len(problems) != 1 {
			t.Errorf("Check with a proxy that is down: %v", problems)
		}
	}
	// With a proxy the endpoint's address is not dialled here; one that is written out is held to the rule all the same.
	host, err := url.Parse(proxy.URL)
	if err != nil {
		t.Fatal(err)
	}
	inside := newDestination(t, "http://10.0.0.1/", func(c *Config) {
		c.Proxy, c.AllowPrivate, c.AllowAddresses = proxy.URL, false, []string{host.Hostname()}
	})
	same(t, deliver(t, inside, newEvent()), paused(CodePolicy, "10.0.0.1"))
}

func TestEnvironmentProxyIsWired(t *testing.T) {
	proxy, err := newProxy(ProxyEnvironment)
	if err != nil || fmt.Sprintf("%p", proxy) != fmt.Sprintf("%p", http.ProxyFromEnvironment) {
		t.Errorf("newProxy(%q) is not http.ProxyFromEnvironment: %v", ProxyEnvironment, err)
	}
}
