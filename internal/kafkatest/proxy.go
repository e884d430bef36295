package kafkatest

import (
	"context"
	"io"
	"net"
	"sync"
)

// Proxy stands between clients and a broker, and can hold up or cut what goes through it.
type Proxy struct {
	// Addr is where clients connect. It stays the same over Stop and start.
	Addr string

	broker string
	mu     sync.Mutex
	listen net.Listener
	open   map[net.Conn]struct{}
	hang   chan struct{} // not nil: answers wait until it is closed
	going  sync.WaitGroup
}

func newProxy(broker string) (*Proxy, error) {
	p := &Proxy{broker: broker, open: map[net.Conn]struct{}{}}
	return p, p.start("127.0.0.1:0")
}

func (p *Proxy) start(addr string) error {
	l, err := new(net.ListenConfig).Listen(context.Background(), "tcp", addr)
	if err != nil {
		return err
	}
	p.Addr = l.Addr().String()
	p.mu.Lock()
	p.listen = l
	p.mu.Unlock()
	p.going.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			p.going.Go(func() { p.carry(client) })
		}
	})
	return nil
}

// carry joins a client with the broker until one of them ends.
func (p *Proxy) carry(client net.Conn) {
	defer func() { _ = client.Close() }()
	broker, err := new(net.Dialer).DialContext(context.Background(), "tcp", p.broker)
	if err != nil {
		return
	}
	defer func() { _ = broker.Close() }()
	if !p.keep(client, broker) {
		return
	}
	defer p.forget(client, broker)
	p.going.Go(func() {
		_, _ = io.Copy(broker, client)
		_ = broker.Close()
	})
	buffer := make([]byte, 64<<10)
	for {
		n, err := broker.Read(buffer)
		p.wait()
		if n > 0 {
			if _, err := client.Write(buffer[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

func (p *Proxy) keep(conns ...net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.listen == nil {
		return false
	}
	for _, c := range conns {
		p.open[c] = struct{}{}
	}
	return true
}

func (p *Proxy) forget(conns ...net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range conns {
		delete(p.open, c)
	}
}

func (p *Proxy) wait() {
	p.mu.Lock()
	hang := p.hang
	p.mu.Unlock()
	if hang != nil {
		<-hang
	}
}

// Hang lets requests through and holds the answers back, until resume is called.
func (p *Proxy) Hang() (resume func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	hang := make(chan struct{})
	p.hang = hang
	return sync.OnceFunc(func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.hang = nil
		close(hang)
	})
}

// Stop cuts every connection and refuses new ones, until start is called.
func (p *Proxy) Stop() (start func() error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.listen != nil {
		_ = p.listen.Close()
		p.listen = nil
	}
	for c := range p.open {
		_ = c.Close()
	}
	return func() error { return p.start(p.Addr) }
}

func (p *Proxy) close() {
	p.mu.Lock()
	if p.hang != nil {
		close(p.hang)
		p.hang = nil
	}
	p.mu.Unlock()
	p.Stop()
	p.going.Wait()
}
