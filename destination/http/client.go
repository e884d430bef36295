package http

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"sync"
	"time"

	"github.com/pillarbox-dev/pillarbox/relay"
)

// Limits of a connection.
const (
	dialTimeout      = 10 * time.Second
	handshakeTimeout = 10 * time.Second
	keepAlive        = 30 * time.Second
	// idleTimeout is shorter than the minute after which many load balancers drop an idle connection in silence.
	idleTimeout = 50 * time.Second
	// pingAfter and pingTimeout find a dead HTTP/2 connection, which would otherwise take all deliveries down with it.
	pingAfter   = 15 * time.Second
	pingTimeout = 10 * time.Second

	maxResponseHeader = 64 << 10 // bytes; all 1xx answers before the last one included
)

// TLS is what a connection identifies itself and the other side with.
type TLS struct {
	// CAFile holds the PEM certificates to trust instead of the system's.
	CAFile string
	// CertFile and KeyFile hold the PEM client certificate. Both or none.
	CertFile, KeyFile string
}

func (t TLS) files() (names []string) {
	for _, name := range []string{t.CAFile, t.CertFile, t.KeyFile} {
		if name != "" {
			names = append(names, name)
		}
	}
	return names
}

// ProxyEnvironment, as Config.Proxy, takes the proxy from HTTPS_PROXY, HTTP_PROXY and NO_PROXY.
const ProxyEnvironment = "environment"

// newProxy reads Config.Proxy.
func newProxy(text string) (func(*http.Request) (*url.URL, error), error) {
	switch text {
	case "":
		return nil, nil
	case ProxyEnvironment:
		return http.ProxyFromEnvironment, nil
	}
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Host == "":
		return nil, errors.New("proxy cannot be parsed: write it like http://host:3128")
	case u.User != nil:
		return nil, fmt.Errorf("proxy holds a user: set HTTPS_PROXY and proxy: %s instead", ProxyEnvironment)
	case u.Scheme != "http" && u.Scheme != "https" && u.Scheme != "socks5":
		return nil, fmt.Errorf("proxy has the scheme %q: use http, https or socks5", printable(u.Scheme))
	}
	return http.ProxyURL(u), nil
}

// client is one connection identity: everything that goes out with the same trust, certificate and proxy shares its
// connections.
type client struct {
	pooled *http.Transport
	// fresh makes a connection of its own for each request.
	fresh  *http.Transport
	dialer *net.Dialer
	tls    *tls.Config
}

func newClient(rule addressRule, proxy func(*http.Request) (*url.URL, error), config *tls.Config) *client {
	c := &client{
		dialer: &net.Dialer{Timeout: dialTimeout, KeepAlive: keepAlive, Control: rule.control},
		tls:    config,
	}
	c.pooled = &http.Transport{
		Proxy:                  proxy,
		OnProxyConnectResponse: proxyAnswered,
		DialContext:            c.dialer.DialContext,
		TLSClientConfig:        config,
		TLSHandshakeTimeout:    handshakeTimeout,
		// The relay's in-flight limit is what bounds connections. A lower limit here would close them after use (with
		// TLS a factor of 30), and MaxConnsPerHost would queue deliveries while their time runs.
		MaxIdleConnsPerHost:    relay.MaxConcurrency,
		IdleConnTimeout:        idleTimeout,
		DisableCompression:     true, // a body that claims to be gzip and is not must not undo a 200
		MaxResponseHeaderBytes: maxResponseHeader,
		ForceAttemptHTTP2:      true,
		HTTP2:                  &http.HTTP2Config{SendPingTimeout: pingAfter, PingTimeout: pingTimeout},
	}
	c.fresh = c.pooled.Clone()
	c.fresh.DisableKeepAlives = true
	return c
}

func (c *client) close() {
	c.pooled.CloseIdleConnections()
	c.fresh.CloseIdleConnections()
}

// proxyRefused says that the proxy did not open the way: nothing has reached the endpoint.
type proxyRefused struct{ status string }

func (e *proxyRefused) Error() string { return "the proxy answered " + e.status }

func proxyAnswered(_ context.Context, _ *url.URL, _ *http.Request, answer *http.Response) error {
	if answer.StatusCode != http.StatusOK {
		return &proxyRefused{printable(answer.Status)}
	}
	return nil
}

// clients gives the client of the identity that the TLS files hold now. When they change there is a new client, and the
// connections of the old one are let go. While new files cannot be used, half written perhaps, the old client stays.
type clients struct {
	files TLS
	make  func(*tls.Config) *client

	mu      sync.Mutex
	current *client
	seen    []os.FileInfo
}

func (c *clients) get() (*client, error) {
	names := c.files.files()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.current != nil && len(names) == 0 {
		return c.current, nil
	}
	seen, err := stat(names)
	if err == nil && c.current != nil && sameFiles(seen, c.seen) {
		return c.current, nil
	}
	var config *tls.Config
	if err == nil {
		config, err = c.files.load()
	}
	switch {
	case err == nil:
		if c.current != nil {
			c.current.close()
		}
		c.current, c.seen = c.make(config), seen
	case c.current == nil:
		return nil, err
	}
	return c.current, nil
}

func (c *clients) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.current != nil {
		c.current.close()
	}
}

func stat(names []string) ([]os.FileInfo, error) {
	infos := make([]os.FileInfo, len(names))
	for i, name := range names {
		info, err := os.Stat(name)
		if err != nil {
			return nil, fmt.Errorf("tls: %w: mount it and let the relay's user read it", err)
		}
		infos[i] = info
	}
	return infos, nil
}

func sameFiles(a, b []os.FileInfo) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if !os.SameFile(a[i], b[i]) || !a[i].ModTime().Equal(b[i].ModTime()) || a[i].Size() != b[i].Size() {
			return false
		}
	}
	return true
}

// load reads the files.
func (t TLS) load() (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	var problems []error
	if t.CAFile != "" {
		pem, err := os.ReadFile(t.CAFile)
		config.RootCAs = x509.NewCertPool()
		switch {
		case err != nil:
			problems = append(problems, fmt.Errorf("tls.ca_file: %w", err))
		case !config.RootCAs.AppendCertsFromPEM(pem):
			problems = append(problems, fmt.Errorf("tls.ca_file %q holds no certificate: it must be PEM", t.CAFile))
		}
	}
	if t.CertFile != "" {
		certificate, err := tls.LoadX509KeyPair(t.CertFile, t.KeyFile)
		if err != nil {
			problems = append(problems, fmt.Errorf("tls.cert_file %q and tls.key_file %q: %w", t.CertFile, t.KeyFile, err))
		}
		config.Certificates = []tls.Certificate{certificate}
	}
	return config, errors.Join(problems...)
}

func (t TLS) problems() []error {
	if (t.CertFile == "") != (t.KeyFile == "") {
		return []error{errors.New("tls.cert_file and tls.key_file belong together: set both or none")}
	}
	return nil
}
