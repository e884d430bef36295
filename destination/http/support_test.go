package http

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pillarbox-dev/pillarbox/relay"
)

// newDestination returns a destination for one endpoint on this machine, with what the changes say on top.
func newDestination(t testing.TB, url string, changes ...func(*Config)) *Destination {
	t.Helper()
	c := Config{Endpoint: Endpoint{URL: url}, AllowPrivate: true}
	for _, change := range changes {
		change(&c)
	}
	d, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.Close)
	return d
}

func newEvent(changes ...func(*relay.Event)) *relay.Event {
	e := &relay.Event{
		Seq: 1, ID: "0190a1b2-0000-7000-8000-000000000001", Topic: "cases", Key: "CASE-1", Type: "CaseAccepted",
		Payload: []byte(`{"case":"CASE-1","amount":1.0}`),
	}
	for _, change := range changes {
		change(e)
	}
	return e
}

// deliver delivers one event with five seconds to do so.
func deliver(t testing.TB, d *Destination, e *relay.Event) relay.Outcome {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	return deliverIn(ctx, t, d, e)
}

func deliverIn(ctx context.Context, t testing.TB, d *Destination, e *relay.Event) relay.Outcome {
	t.Helper()
	outcomes := d.Deliver(ctx, []relay.Delivery{{Event: e, Endpoint: d.Endpoint(e), Attempt: 1}})
	if len(outcomes) != 1 {
		t.Fatalf("%d outcomes for one delivery", len(outcomes))
	}
	return outcomes[0]
}

// same compares all of an outcome but its message, of which it wants a part.
func same(t testing.TB, got, want relay.Outcome) {
	t.Helper()
	message, part := got.Message, want.Message
	got.Message, want.Message = "", ""
	if got != want {
		t.Errorf("outcome\n got %+v\nwant %+v\nmessage %q", got, want, message)
	}
	if !strings.Contains(message, part) {
		t.Errorf("message %q does not say %q", message, part)
	}
}

func newServer(t testing.TB, handler http.HandlerFunc) *httptest.Server {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	return server
}

// rawServer takes connections one by one into serve, each in a goroutine of its own; serve need not close them.
func rawServer(t testing.TB, serve func(n int, c net.Conn, requests *bufio.Reader)) (url string) {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var open sync.WaitGroup
	var mu sync.Mutex
	var connections []net.Conn
	open.Go(func() {
		for n := 1; ; n++ {
			c, err := listener.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			connections = append(connections, c)
			mu.Unlock()
			open.Go(func() {
				defer func() { _ = c.Close() }()
				serve(n, c, bufio.NewReader(c))
			})
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		mu.Lock()
		for _, c := range connections {
			_ = c.Close()
		}
		mu.Unlock()
		open.Wait()
	})
	return "http://" + listener.Addr().String()
}

// rawAnswer is a server that answers each request on each connection with the same bytes.
func rawAnswer(t testing.TB, answer string) (url string) {
	return rawServer(t, func(_ int, c net.Conn, requests *bufio.Reader) {
		for readRequest(requests) == nil {
			if _, err := io.WriteString(c, answer); err != nil {
				return
			}
		}
	})
}

// readRequest reads one whole request.
func readRequest(r *bufio.Reader) error {
	request, err := http.ReadRequest(r)
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, request.Body)
	return err
}

// reset ends a connection with RST instead of FIN.
func reset(c net.Conn) {
	_ = c.(*net.TCPConn).SetLinger(0)
	_ = c.Close()
}

// write puts text into a file of its own, replacing it at once as a mount does.
func write(t testing.TB, path, text string) string {
	t.Helper()
	next := path + ".next"
	if err := os.WriteFile(next, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(next, path); err != nil {
		t.Fatal(err)
	}
	return path
}

func secretFile(t testing.TB, text string) string {
	t.Helper()
	return write(t, filepath.Join(t.TempDir(), "secret"), text)
}

func status(code int, headers ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		for i := 0; i < len(headers); i += 2 {
			w.Header().Set(headers[i], headers[i+1])
		}
		w.WriteHeader(code)
		_, _ = fmt.Fprintf(w, "said %d", code)
	}
}
