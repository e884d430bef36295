package http

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http/httptrace"
	"strings"
	"sync/atomic"
	"syscall"

	"github.com/pillarbox-dev/pillarbox/relay"
)

// Codes for an attempt that got no answer.
const (
	CodeTimeout   = "TIMEOUT"     // the delivery timeout
	CodeDial      = "DIAL"        // no connection: refused, unreachable, too slow
	CodeDNS       = "DNS"         // the host's name was not resolved
	CodeTLS       = "TLS"         // handshake, certificate
	CodeReset     = "RESET"       // the connection ended before the answer
	CodeConfig    = "CONFIG"      // endpoint, credential, TLS file or scheme: ours to mend
	CodePolicy    = "POLICY"      // the address is refused
	CodeCancelled = "CANCELLED"   // the caller gave up, and not because of a shutdown
	CodeNoTarget  = "NO_ENDPOINT" // the event names no endpoint
)

// trace notes how far a request got. The transport's goroutines write it while ours reads.
type trace struct {
	// connected: there was a connection, so from here on something may have been sent.
	connected atomic.Bool
	// reused: it had carried a request before.
	reused atomic.Bool
	// answered: a byte came back.
	answered atomic.Bool
}

func (t *trace) hooks() *httptrace.ClientTrace {
	return &httptrace.ClientTrace{
		// Called again when the transport takes another connection because nothing was written to the first.
		GetConn: func(string) {
			t.connected.Store(false)
			t.reused.Store(false)
			t.answered.Store(false)
		},
		GotConn: func(info httptrace.GotConnInfo) {
			t.reused.Store(info.Reused)
			t.connected.Store(true)
		},
		GotFirstResponseByte: func() { t.answered.Store(true) },
	}
}

// stale tells whether a connection from the pool ended before a byte came back. Nearly always the other side had closed it
// while it was idle.
func (t *trace) stale(o relay.Outcome) bool {
	return o.Code == CodeReset && t.reused.Load() && !t.answered.Load()
}

// interrupted is the outcome of a delivery whose context has ended.
func interrupted(ctx context.Context, sent bool) relay.Outcome {
	switch {
	case errors.Is(context.Cause(ctx), relay.ErrShutdown):
		return relay.Outcome{Kind: relay.Released, Uncertain: sent}
	case !errors.Is(ctx.Err(), context.DeadlineExceeded):
		return relay.Outcome{Code: CodeCancelled, Message: "the delivery was cancelled", Uncertain: sent}
	case sent:
		return relay.Outcome{Code: CodeTimeout, Message: "no answer within the delivery timeout", Trouble: true, Uncertain: true}
	}
	return unavailable(CodeTimeout, "no connection within the delivery timeout")
}

// failed is the outcome of a send that got no answer. After a connection was had, the receiver may have processed it; before,
// nothing was sent. The text is that of the error, fit to be shown.
func failed(ctx context.Context, err error, text string, t *trace) relay.Outcome {
	sent := t.connected.Load()
	if ctx.Err() != nil {
		return interrupted(ctx, sent)
	}
	if !sent {
		return notConnected(err, text)
	}
	var timeout net.Error
	switch {
	case isCertificateRefusal(err):
		return paused(CodeTLS, text+": the endpoint refuses our certificate: check tls.cert_file and tls.key_file")
	case errors.As(err, &timeout) && timeout.Timeout():
		return relay.Outcome{Code: CodeTimeout, Message: text, Trouble: true, Uncertain: true}
	case isReset(err):
		return relay.Outcome{Code: CodeReset, Message: text, Uncertain: true}
	}
	return relay.Outcome{Code: CodeProtocol, Message: text, Uncertain: true}
}

// notConnected is the outcome when there was no connection to send on.
func notConnected(err error, text string) relay.Outcome {
	var refused *refusedAddress
	var proxy *proxyRefused
	var dns *net.DNSError
	var op *net.OpError
	var record tls.RecordHeaderError
	switch {
	case errors.As(err, &refused):
		return paused(CodePolicy, refused.Error())
	case errors.As(err, &proxy):
		return unavailable(CodeEgress, proxy.Error()+": check proxy and its credentials")
	case errors.As(err, &dns):
		return unavailable(CodeDNS, text+": check the url's host, and whether this machine resolves it")
	case errors.As(err, &record) && string(record.RecordHeader[:]) == "HTTP/":
		return paused(CodeConfig, "the endpoint speaks http, not https: set its url to http:// or its server to TLS")
	case isCertificateFault(err):
		return paused(CodeTLS, text+": check the endpoint's certificate and tls.ca_file")
	case isCertificateRefusal(err):
		return paused(CodeTLS, text+": the endpoint refuses our certificate: check tls.cert_file and tls.key_file")
	case errors.As(err, &op) && (op.Op == "dial" || op.Op == "proxyconnect" || op.Op == "socks connect"):
		return unavailable(CodeDial, text+": check that the endpoint is up, its port, and the way to it")
	case strings.HasPrefix(text, "net/http: invalid header"):
		return paused(CodeConfig, text+": the content type that the envelope gives must be one line")
	}
	return unavailable(CodeTLS, "TLS handshake: "+text)
}

// isCertificateFault: we do not trust the endpoint's certificate.
func isCertificateFault(err error) bool {
	var verification *tls.CertificateVerificationError
	var unknown x509.UnknownAuthorityError
	var invalid x509.CertificateInvalidError
	var host x509.HostnameError
	return errors.As(err, &verification) || errors.As(err, &unknown) || errors.As(err, &invalid) || errors.As(err, &host)
}

// certificateAlerts are the TLS alerts about a client's certificate (RFC 8446 §6.2) as crypto/tls words them. With TLS 1.3 they
// arrive when the client believes the handshake done and has begun to send; the endpoint has read nothing of it.
var certificateAlerts = []string{
	"bad certificate", "unsupported certificate", "revoked certificate", "expired certificate", "unknown certificate",
	"unknown certificate authority", "access denied", "certificate required",
}

// isCertificateRefusal: the endpoint does not trust ours, or wants one.
func isCertificateRefusal(err error) bool {
	var op *net.OpError
	if !errors.As(err, &op) || op.Op != "remote error" || op.Err == nil {
		return false
	}
	for _, alert := range certificateAlerts {
		if op.Err.Error() == "tls: "+alert {
			return true
		}
	}
	return false
}

// isReset: the connection ended, in one of the many ways in which that shows.
func isReset(err error) bool {
	for _, end := range []error{
		io.EOF, io.ErrUnexpectedEOF, syscall.ECONNRESET, syscall.EPIPE, syscall.ECONNABORTED, net.ErrClosed,
	} {
		if errors.Is(err, end) {
			return true
		}
	}
	// net/http keeps these to itself.
	text := err.Error()
	for _, end := range []string{"server closed idle connection", "http2: client connection", "GOAWAY", "stream error:"} {
		if strings.Contains(text, end) {
			return true
		}
	}
	return false
}

func unavailable(code, message string) relay.Outcome {
	return relay.Outcome{Kind: relay.Unavailable, Code: code, Message: message}
}

// paused is Unavailable where waiting mends nothing.
func paused(code, message string) relay.Outcome {
	return relay.Outcome{Kind: relay.Unavailable, Code: code, Message: message, Pause: true}
}
