package http

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/pillarbox-dev/pillarbox/relay"
)

// Nothing was sent: the endpoint is Unavailable.
func TestNoConnection(t *testing.T) {
	closed := newServer(t, status(200))
	closed.Close()
	noTLS := rawServer(t, func(_ int, c net.Conn, r *bufio.Reader) { _, _ = io.WriteString(c, "garbage, no handshake\n") })
	hangsUp := rawServer(t, func(_ int, c net.Conn, r *bufio.Reader) { _, _ = r.ReadByte(); reset(c) })
	plain := newServer(t, status(200))
	https := func(url string) string { return strings.Replace(url, "http:", "https:", 1) }
	for name, tt := range map[string]struct {
		url  string
		want relay.Outcome
	}{
		"refused":        {closed.URL, relay.Outcome{Kind: relay.Unavailable, Code: CodeDial, Message: "connection refused"}},
		"unreachable":    {"http://255.255.255.255/", relay.Outcome{Kind: relay.Unavailable, Code: CodeDial, Message: "unreachable"}},
		"unknown name":   {"http://no..name/", relay.Outcome{Kind: relay.Unavailable, Code: CodeDNS, Message: "no such host"}},
		"port 0":         {"http://127.0.0.1:0/", relay.Outcome{Kind: relay.Unavailable, Code: CodeDial}},
		"no TLS":         {https(noTLS), relay.Outcome{Kind: relay.Unavailable, Code: CodeTLS, Message: "handshake"}},
		"TLS hangs up":   {https(hangsUp), relay.Outcome{Kind: relay.Unavailable, Code: CodeTLS, Message: "handshake"}},
		"http, no https": {https(plain.URL), paused(CodeConfig, "set its url")},
	} {
		t.Run(name, func(t *testing.T) {
			same(t, deliver(t, newDestination(t, tt.url), newEvent()), tt.want)
		})
	}
}

// A listener whose queue is full drops every further SYN, as a black hole does.
func fullListener(t *testing.T) (url string) {
	t.Helper()
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Close(fd) })
	if err := syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Listen(fd, 0); err != nil {
		t.Fatal(err)
	}
	at, err := syscall.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	address := net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: at.(*syscall.SockaddrInet4).Port}
	for range 3 {
		dialer := net.Dialer{Timeout: 200 * time.Millisecond}
		if c, err := dialer.DialContext(t.Context(), "tcp", address.String()); err == nil {
			t.Cleanup(func() { _ = c.Close() })
		}
	}
	return "http://" + address.String()
}

func TestBlackHole(t *testing.T) {
	ends := make(chan struct{})
	silent := newServer(t, func(w http.ResponseWriter, r *http.Request) { <-ends })
	t.Cleanup(func() { close(ends) })
	handshake := rawServer(t, func(_ int, c net.Conn, r *bufio.Reader) { _, _ = io.Copy(io.Discard, r) })
	for name, tt := range map[string]struct {
		url  string
		want relay.Outcome
	}{
		"no connection": {fullListener(t), relay.Outcome{Kind: relay.Unavailable, Code: CodeTimeout, Message: "no connection"}},
		"no handshake": {strings.Replace(handshake, "http:", "https:", 1),
			relay.Outcome{Kind: relay.Unavailable, Code: CodeTimeout, Message: "no connection"}},
		"no answer": {silent.URL,
			relay.Outcome{Kind: relay.Retry, Code: CodeTimeout, Trouble: true, Uncertain: true, Message: "no answer"}},
		"half an answer": {rawAnswer(t, "HTTP/1.1 200 OK\r\nContent-Le"),
			relay.Outcome{Kind: relay.Retry, Code: CodeTimeout, Trouble: true, Uncertain: true}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
			defer cancel()
			start := time.Now()
			same(t, deliverIn(ctx, t, newDestination(t, tt.url), newEvent()), tt.want)
			if took := time.Since(start); took > time.Second {
				t.Errorf("took %s with a deadline of 300 ms", took)
			}
		})
	}
}

// The request was written and the connection ended: the receiver may have processed it.
func TestEndAfterTheRequest(t *testing.T) {
	want := relay.Outcome{Kind: relay.Retry, Code: CodeReset, Uncertain: true}
	for name, end := range map[string]func(net.Conn){
		"EOF":            func(c net.Conn) { _ = c.Close() },
		"reset":          reset,
		"within headers": func(c net.Conn) { _, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nServer: x\r\n"); _ = c.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			var requests atomic.Int32
			url := rawServer(t, func(_ int, c net.Conn, r *bufio.Reader) {
				if readRequest(r) == nil {
					requests.Add(1)
					end(c)
				}
			})
			same(t, deliver(t, newDestination(t, url), newEvent()), want)
			if n := requests.Load(); n != 1 {
				t.Errorf("sent %d times, want once", n)
			}
		})
	}
}

// A connection from the pool that ends before a byte came back: once more at once, on a fresh one, and never a third time.
// Go's transport would do that by itself, without end, for a POST with a header that is literally named Idempotency-Key.
func TestStaleConnection(t *testing.T) {
	for name, end := range map[string]func(net.Conn){"EOF": func(c net.Conn) { _ = c.Close() }, "reset": reset} {
		for _, key := range []string{"Idempotency-Key", "idempotency-key", "X-Idempotency-Key", "Event-Key"} {
			for _, payload := range []string{`{"a":1}`, ""} {
				t.Run(name+" "+key+" "+payload, func(t *testing.T) {
					var requests, connections, answers atomic.Int32
					answers.Store(1) // the first request of each connection is answered, later ones are not
					url := rawServer(t, func(n int, c net.Conn, r *bufio.Reader) {
						connections.Add(1)
						for i := int32(1); readRequest(r) == nil; i++ {
							requests.Add(1)
							if i > answers.Load() {
								end(c)
								return
							}
							_, _ = io.WriteString(c, "HTTP/1.1 204 No Content\r\n\r\n")
						}
					})
					d := newDestination(t, url, func(c *Config) { c.Headers.Idempotency = key })
					e := newEvent(func(e *relay.Event) { e.Payload = []byte(payload) })
					same(t, deliver(t, d, e), relay.Outcome{Kind: relay.Published, Receipt: "204"})
					// The second finds the pooled connection ended under it.
					same(t, deliver(t, d, e), relay.Outcome{Kind: relay.Published, Receipt: "204", Uncertain: true})
					if r, c := requests.Load(), connections.Load(); r != 3 || c != 2 {
						t.Errorf("%d requests on %d connections, want 3 on 2", r, c)
					}
				})
			}
		}
	}
}

// When the fresh connection ends too, it stays at two sends.
func TestStaleConnectionTwice(t *testing.T) {
	var requests atomic.Int32
	url := rawServer(t, func(n int, c net.Conn, r *bufio.Reader) {
		if n == 1 && readRequest(r) == nil {
			_, _ = io.WriteString(c, "HTTP/1.1 204 No Content\r\n\r\n")
		}
		if readRequest(r) == nil {
			requests.Add(1)
			reset(c)
		}
	})
	d := newDestination(t, url)
	same(t, deliver(t, d, newEvent()), relay.Outcome{Kind: relay.Published, Receipt: "204"})
	same(t, deliver(t, d, newEvent()), relay.Outcome{Kind: relay.Retry, Code: CodeReset, Uncertain: true})
	if n := requests.Load(); n != 2 {
		t.Errorf("sent %d times, want 2", n)
	}
}

// Where the connection is closed while it is idle and that is noticed in time, nothing is sent twice.
func TestIdleConnectionClosed(t *testing.T) {
	var requests atomic.Int32
	server := newServer(t, func(w http.ResponseWriter, r *http.Request) { requests.Add(1) })
	d := newDestination(t, server.URL)
	for range 3 {
		same(t, deliver(t, d, newEvent()), relay.Outcome{Kind: relay.Published, Receipt: "200"})
		server.CloseClientConnections()
		time.Sleep(20 * time.Millisecond)
	}
	if n := requests.Load(); n != 3 {
		t.Errorf("%d requests for 3 deliveries", n)
	}
}

func TestShutdown(t *testing.T) {
	arrived := make(chan struct{}, 10)
	ends := make(chan struct{})
	server := newServer(t, func(w http.ResponseWriter, r *http.Request) { arrived <- struct{}{}; <-ends })
	t.Cleanup(func() { close(ends) })
	for name, tt := range map[string]struct {
		cause error
		want  relay.Outcome
	}{
		"shutdown": {relay.ErrShutdown, relay.Outcome{Kind: relay.Released, Uncertain: true}},
		"another":  {errors.New("another cause"), relay.Outcome{Kind: relay.Retry, Code: CodeCancelled, Uncertain: true}},
		"none":     {nil, relay.Outcome{Kind: relay.Retry, Code: CodeCancelled, Uncertain: true}},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDestination(t, server.URL)
			ctx, cancel := context.WithCancelCause(context.Background())
			go func() { <-arrived; cancel(tt.cause) }()
			same(t, deliverIn(ctx, t, d, newEvent()), tt.want)

			tt.want.Uncertain = false // not begun
			same(t, deliverIn(ctx, t, d, newEvent()), tt.want)
		})
	}
	t.Run("deadline passed before", func(t *testing.T) {
		ctx, cancel := context.WithTimeout(context.Background(), 0)
		defer cancel()
		same(t, deliverIn(ctx, t, newDestination(t, server.URL), newEvent()),
			relay.Outcome{Kind: relay.Unavailable, Code: CodeTimeout})
	})
	t.Run("the rest of a batch", func(t *testing.T) {
		d := newDestination(t, server.URL)
		ctx, cancel := context.WithCancelCause(context.Background())
		go func() { <-arrived; cancel(relay.ErrShutdown) }()
		outcomes := d.Deliver(ctx, []relay.Delivery{{Event: newEvent()}, {Event: newEvent()}, {Event: newEvent()}})
		same(t, outcomes[0], relay.Outcome{Kind: relay.Released, Uncertain: true})
		same(t, outcomes[1], relay.Outcome{Kind: relay.Released})
		same(t, outcomes[2], relay.Outcome{Kind: relay.Released})
	})
}

// An answer that is there counts, also when the shutdown comes while its body is read.
func TestShutdownWithinTheBody(t *testing.T) {
	ctx, cancel := context.WithCancelCause(context.Background())
	url := rawServer(t, func(_ int, c net.Conn, r *bufio.Reader) {
		if readRequest(r) == nil {
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf")
			time.Sleep(50 * time.Millisecond)
			cancel(relay.ErrShutdown)
			_, _ = r.ReadByte()
		}
	})
	same(t, deliverIn(ctx, t, newDestination(t, url), newEvent()), relay.Outcome{Kind: relay.Published, Receipt: "200"})
}

// Then nothing is sent again either.
func TestShutdownBeforeTheSecondSend(t *testing.T) {
	ctx, cancel := context.WithCancelCause(context.Background())
	token := secretFile(t, "old")
	var requests atomic.Int32
	url := rawServer(t, func(_ int, c net.Conn, r *bufio.Reader) {
		if readRequest(r) == nil {
			requests.Add(1)
			write(t, token, "new")
			_, _ = io.WriteString(c, "HTTP/1.1 401 No\r\nContent-Length: 100\r\n\r\nhalf")
			time.Sleep(50 * time.Millisecond)
			cancel(relay.ErrShutdown)
			_, _ = r.ReadByte()
		}
	})
	d := newDestination(t, url, func(c *Config) { c.Endpoint.TokenFile = token })
	same(t, deliverIn(ctx, t, d, newEvent()), relay.Outcome{Kind: relay.Unavailable, Code: CodeUnauthorized, Receipt: "401"})
	if n := requests.Load(); n != 1 {
		t.Errorf("%d requests, want 1", n)
	}
}

func TestHTTP2(t *testing.T) {
	var protocol atomic.Value
	var requests atomic.Int32
	die := make(chan struct{})
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		protocol.Store(r.Proto)
		_, _ = io.Copy(io.Discard, r.Body)
		switch requests.Add(1) {
		case 2:
			panic(http.ErrAbortHandler) // RST_STREAM
		case 4:
			close(die)
			<-r.Context().Done()
		}
	}))
	server.EnableHTTP2 = true
	server.StartTLS()
	t.Cleanup(server.Close)
	d := newDestination(t, server.URL, func(c *Config) { c.TLS.CAFile = caOf(t, server) })
	ok := relay.Outcome{Kind: relay.Published, Receipt: "200"}
	same(t, deliver(t, d, newEvent()), ok)
	if protocol.Load() != "HTTP/2.0" {
		t.Fatalf("spoke %v", protocol.Load())
	}
	same(t, deliver(t, d, newEvent()), relay.Outcome{Kind: relay.Published, Receipt: "200", Uncertain: true})
	if n := requests.Load(); n != 3 {
		t.Fatalf("%d requests, want 3", n)
	}
	go func() { <-die; server.CloseClientConnections() }()
	same(t, deliver(t, d, newEvent()), relay.Outcome{Kind: relay.Published, Receipt: "200", Uncertain: true})
}
