package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	httpdest "github.com/pillarbox-dev/pillarbox/destination/http"
	"github.com/pillarbox-dev/pillarbox/outbox/webhook"
)

const signatureHeader = "Bench-Signature"

// receiver is an HTTP server on loopback that takes signed events, as a supplier's would: it reads the body, verifies the
// signature and answers 200. Its path names the endpoint.
type receiver struct {
	url        string
	secretFile string
	takes      time.Duration // from a request's arrival to its answer

	secret   []byte
	listener net.Listener
	server   *http.Server
	serving  sync.WaitGroup
	dir      string
	watch    atomic.Pointer[arrivals]
	unsigned atomic.Int64
}

// arrivals are the answered requests for some of the endpoints.
type arrivals struct {
	*quota
	counts func(endpoint string) bool
}

func startReceiver() (r *receiver, err error) {
	r = &receiver{secret: []byte("bench secret")}
	if r.dir, err = os.MkdirTemp("", "pillarbox-bench"); err != nil {
		return nil, err
	}
	r.secretFile = filepath.Join(r.dir, "secret")
	err = os.WriteFile(r.secretFile, r.secret, 0o600)
	if err == nil {
		r.listener, err = listen()
	}
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(r.dir))
	}
	r.url = "http://" + r.listener.Addr().String() + "/"
	r.server = &http.Server{Handler: http.HandlerFunc(r.receive)}
	r.serving.Go(func() { _ = r.server.Serve(r.listener) }) // ends with close, and says no more than that
	return r, nil
}

// listen takes a free port of this machine alone.
func listen() (net.Listener, error) {
	return (&net.ListenConfig{}).Listen(context.Background(), "tcp", "127.0.0.1:0")
}

func (r *receiver) close() error {
	err := r.server.Close()
	r.serving.Wait()
	return errors.Join(err, os.RemoveAll(r.dir))
}

func (r *receiver) receive(w http.ResponseWriter, request *http.Request) {
	body, err := io.ReadAll(request.Body)
	if err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	if webhook.VerifyHex([][]byte{r.secret}, body, request.Header.Get(signatureHeader)) != nil {
		r.unsigned.Add(1)
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	time.Sleep(r.takes)
	w.WriteHeader(http.StatusOK)
	if a := r.watch.Load(); a != nil && a.counts(request.URL.Path[1:]) {
		a.add(1)
	}
}

// check says whether all that arrived was signed.
func (r *receiver) check() error {
	if n := r.unsigned.Load(); n > 0 {
		return fmt.Errorf("the measurement is void: %d requests came with a wrong signature", n)
	}
	return nil
}

// endpoint is a path of the receiver as the destination is told of it.
func (r *receiver) endpoint(name string) httpdest.Endpoint {
	return httpdest.Endpoint{URL: r.url + name, SecretFiles: []string{r.secretFile}}
}

// destination is the real HTTP destination, signing, with one endpoint or several.
func (r *receiver) destination(c httpdest.Config) (*httpdest.Destination, error) {
	c.Signing = httpdest.Signing{Hex: true, HexHeader: signatureHeader}
	c.AllowAddresses = []string{"127.0.0.1"}
	return httpdest.New(c)
}

// blackHole accepts connections and never answers.
type blackHole struct {
	listener net.Listener
	mu       sync.Mutex
	open     []net.Conn
	done     sync.WaitGroup
}

func openBlackHole() (*blackHole, error) {
	listener, err := listen()
	if err != nil {
		return nil, err
	}
	b := &blackHole{listener: listener}
	b.done.Go(b.accept)
	return b, nil
}

func (b *blackHole) accept() {
	for {
		conn, err := b.listener.Accept()
		if err != nil {
			return // closed
		}
		b.mu.Lock()
		b.open = append(b.open, conn)
		b.mu.Unlock()
	}
}

func (b *blackHole) url() string { return "http://" + b.listener.Addr().String() + "/" }

func (b *blackHole) close() error {
	err := b.listener.Close()
	b.done.Wait()
	for _, conn := range b.open {
		err = errors.Join(err, conn.Close())
	}
	return err
}
