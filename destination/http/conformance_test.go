package http

import (
	"context"
	"io"
	"net"
	"net/http"
	"sync"
	"testing"

	"github.com/pillarbox-dev/pillarbox/relay"
	"github.com/pillarbox-dev/pillarbox/relay/relaytest"
)

// The suite that every destination passes.
func TestConformance(t *testing.T) {
	relaytest.TestDestination(t, relaytest.DestinationFeatures{Refuses: true}, func(t *testing.T) relaytest.Rig {
		f := &farEnd{t: t}
		f.start("127.0.0.1:0")
		t.Cleanup(func() { _ = f.server.Close() })
		f.destination = newDestination(t, "http://"+f.listener.Addr().String()+"/in", func(c *Config) {
			c.Signing.Hex = true
			c.Endpoint.SecretFiles = []string{secretFile(t, "s3cret")}
		})
		return f
	})
}

// farEnd is a receiver that can be held up and stopped.
type farEnd struct {
	t           testing.TB
	destination *Destination
	server      *http.Server
	listener    net.Listener

	mu       sync.Mutex
	received []relaytest.Received
	hang     chan struct{} // nil: answers
}

// start listens where it did before, so that what was stopped comes back.
func (f *farEnd) start(address string) {
	listener, err := new(net.ListenConfig).Listen(context.Background(), "tcp", address)
	if err != nil {
		f.t.Fatal(err)
	}
	server := &http.Server{Handler: f, ErrorLog: discardLog()}
	f.server, f.listener = server, listener
	go func() { _ = server.Serve(listener) }()
}

func (f *farEnd) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	if r.Header.Get("Pillarbox-Event-Type") == "Refused" {
		w.WriteHeader(http.StatusUnprocessableEntity)
		return
	}
	f.mu.Lock()
	f.received = append(f.received, relaytest.Received{ID: r.Header.Get("Idempotency-Key"), Payload: body})
	hang := f.hang
	f.mu.Unlock()
	if hang != nil {
		select {
		case <-hang:
		case <-r.Context().Done():
		}
	}
}

func (f *farEnd) Destination() relay.Destination { return f.destination }

func (f *farEnd) Received(testing.TB) []relaytest.Received {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]relaytest.Received(nil), f.received...)
}

func (f *farEnd) Refused(testing.TB) relay.Event {
	return relay.Event{Type: "Refused", Payload: []byte(`{}`)}
}

func (f *farEnd) Hang(testing.TB) (resume func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	hang := make(chan struct{})
	f.hang = hang
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.hang = nil
		close(hang)
	}
}

func (f *farEnd) Stop(t testing.TB) (start func()) {
	if err := f.server.Close(); err != nil {
		t.Error(err)
	}
	_ = f.listener.Close() // the server's when it serves, which may not be yet
	return func() { f.start(f.listener.Addr().String()) }
}
