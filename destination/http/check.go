package http

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"time"

	"golang.org/x/sync/errgroup"
)

// checksAtOnce bounds how many endpoints are dialled at a time.
const checksAtOnce = 16

// alertWait is how long Check waits for a server that asked for a certificate to refuse ours.
const alertWait = 500 * time.Millisecond

// Check implements relay.Checker: are the credentials there, does each host resolve, answer, and hold a certificate that we
// trust? It sends no request. An endpoint that is disabled is passed over.
func (d *Destination) Check(ctx context.Context) []error {
	client, err := d.clients.get()
	if err != nil {
		return []error{err}
	}
	names, problems := d.names(ctx)
	found := make([][]error, len(names))
	var group errgroup.Group
	group.SetLimit(checksAtOnce)
	for i, name := range names {
		group.Go(func() error {
			for _, err := range d.checkEndpoint(ctx, client, name) {
				if d.config.Endpoints != nil {
					err = fmt.Errorf("endpoint %s: %w", quote(name), err)
				}
				found[i] = append(found[i], err)
			}
			return nil
		})
	}
	_ = group.Wait()
	for _, f := range found {
		problems = append(problems, f...)
	}
	return problems
}

// names returns the endpoints that can be listed; "" is the only one.
func (d *Destination) names(ctx context.Context) (names []string, problems []error) {
	if d.config.Endpoints == nil {
		return []string{""}, nil
	}
	if r, ok := d.config.Endpoints.(refresher); ok {
		if err := r.Refresh(ctx); err != nil {
			problems = append(problems, fmt.Errorf("%w: check the database and the table outbox_endpoint", err))
		}
	}
	if n, ok := d.config.Endpoints.(namer); ok {
		names = n.Names()
	}
	return names, problems
}

func (d *Destination) checkEndpoint(ctx context.Context, c *client, name string) []error {
	e, ok := d.lookup(name)
	if !ok || e.Disabled {
		return nil
	}
	problems := e.problems(d.config.Signing)
	credentials, err := e.credentials(d.files)
	if err == nil && d.config.Signing.Standard {
		_, err = credentials.standardSecrets()
	}
	if err != nil {
		problems = append(problems, err)
	}
	if u, err := e.target(); err == nil {
		if err := d.checkConnection(ctx, c, u); err != nil {
			problems = append(problems, fmt.Errorf("%s://%s: %w", u.Scheme, u.Host, err))
		}
	}
	return problems
}

// checkConnection dials the endpoint, or the proxy that leads to it, and shakes hands. Its error is worded as Deliver's is.
func (d *Destination) checkConnection(ctx context.Context, c *client, u *url.URL) error {
	if err := d.rule.checkHost(u.Hostname()); err != nil {
		return err
	}
	if c.pooled.Proxy != nil {
		proxy, err := c.pooled.Proxy(&http.Request{URL: u})
		if err != nil {
			return fmt.Errorf("proxy: %w", err)
		}
		if proxy != nil {
			u = proxy
		}
	}
	return d.checkDial(ctx, c, u)
}

func (d *Destination) checkDial(ctx context.Context, c *client, u *url.URL) error {
	connection, err := c.dialer.DialContext(ctx, "tcp", net.JoinHostPort(u.Hostname(), port(u)))
	if err != nil {
		return worded(err)
	}
	defer func() { _ = connection.Close() }()
	if u.Scheme != "https" {
		return nil
	}
	config := c.tls.Clone()
	config.ServerName = u.Hostname()
	asked := false
	config.GetClientCertificate = func(request *tls.CertificateRequestInfo) (*tls.Certificate, error) {
		asked = true
		for i := range c.tls.Certificates {
			if request.SupportsCertificate(&c.tls.Certificates[i]) == nil {
				return &c.tls.Certificates[i], nil
			}
		}
		return new(tls.Certificate), nil
	}
	ctx, cancel := context.WithTimeout(ctx, handshakeTimeout)
	defer cancel()
	secured := tls.Client(connection, config)
	if err := secured.HandshakeContext(ctx); err != nil {
		return worded(err)
	}
	if !asked {
		return nil
	}
	// With TLS 1.3 the server judges our certificate after we believe the handshake done, and says so only if it refuses.
	_ = secured.SetReadDeadline(time.Now().Add(alertWait))
	if _, err := secured.Read(make([]byte, 1)); err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		return worded(err)
	}
	return nil
}

func port(u *url.URL) string {
	switch {
	case u.Port() != "":
		return u.Port()
	case u.Scheme == "https":
		return "443"
	case u.Scheme == "socks5":
		return "1080"
	}
	return "80"
}

// worded says what Deliver would say about a connection that fails.
func worded(err error) error {
	out := notConnected(err, printable(err.Error()))
	return errors.New(out.Code + ": " + out.Message)
}
