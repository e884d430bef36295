package webhook

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/pillarbox-dev/pillarbox/outbox"
)

// Scheme is how deliveries are signed.
type Scheme uint8

const (
	// SHA256Hex covers the body alone. Whoever has seen a delivery can send its body again under another id: where that matters,
	// set Config.BodyID, or use StandardWebhooks.
	SHA256Hex Scheme = iota
	// StandardWebhooks covers the id, the time and the body (https://www.standardwebhooks.com).
	StandardWebhooks
)

// Inbox tells whether an event is handled for the first time; *inbox.Inbox does.
type Inbox interface {
	First(ctx context.Context, tx outbox.Tx, consumer, eventID string, body []byte) (bool, error)
}

// Delivery is one event as it came, verified.
type Delivery struct {
	// ID is the event's, from the header.
	ID string
	// Header is the request's, all of it.
	Header http.Header
	// Body is the raw body, byte for byte as it was signed.
	Body []byte
}

// Config says how deliveries are received. T is the driver's transaction: *sql.Tx, pgx.Tx. Without a default: Consumer, Inbox,
// Begin, Handle and Secrets.
type Config[T any] struct {
	// Consumer is the name under which the inbox records what was handled.
	Consumer string
	Inbox    Inbox
	// Begin begins the transaction of a delivery: outbox.BeginSQL(db, nil), outbox.BeginPgx(pool). READ COMMITTED is best.
	Begin outbox.Begin[T]
	// Handle handles an event, in tx, and neither commits nor rolls back. It is called once for each event that is committed.
	// An error or a panic rolls everything back, the inbox's record included, and the sender tries again: see TryAgain,
	// Malformed and Refuse.
	// The context ends when the sender hangs up.
	Handle func(ctx context.Context, tx T, d Delivery) error

	// Scheme is how deliveries are signed. Default: SHA256Hex.
	Scheme Scheme
	// Secrets returns the active secrets, decoded, for each request, so that they can be rotated: during a rotation there are
	// two. Empty ones are passed over. When there are none, or with an error, deliveries are answered with 503.
	Secrets func(ctx context.Context) ([][]byte, error)
	// Tokens returns the active bearer tokens, likewise. Nil: no Authorization is asked for.
	Tokens func(ctx context.Context) ([]string, error)
	// SignatureHeader carries the signature. Default: Pillarbox-Signature, or Webhook-Signature.
	SignatureHeader string
	// IDHeader carries the event id. Default: Idempotency-Key, or Webhook-Id.
	IDHeader string
	// TimestampHeader carries the time of Standard Webhooks. Default: Webhook-Timestamp.
	TimestampHeader string

	// ContentTypes are the media types that are taken, without parameters. Default: application/json and all that end in +json.
	// A request without a body needs none.
	ContentTypes []string
	// MaxBodyBytes bounds the body. Default: 1 MiB.
	MaxBodyBytes int64
	// Tolerance is how far the signed time may lie from this clock, in both directions. Default: DefaultTolerance.
	Tolerance time.Duration
	// RetryAfter is what a sender is told to wait with 409 and 503, in whole seconds. Default: 1 s.
	RetryAfter time.Duration

	// BodyID returns the event id that the body holds; when it is not the header's, or with an error, the answer is 400. Nil: the
	// body is not looked into.
	BodyID func(body []byte) (string, error)
	// SameBody returns what must be the same whenever the id is; anything else is answered with 422. Default: the body. Needed for
	// envelopes that say when they were sent (publishedAt): return the part that stays, or nil to compare the id alone.
	SameBody func(d Delivery) []byte

	// Log is told why a request was refused or failed, never a secret, a token or a signature. Default: slog.Default().
	Log *slog.Logger
	// Count is called once for each request, for a metric with the labels status and reason. Nil: nothing is counted.
	Count func(status int, reason Reason)
	// Now is the clock. Default: time.Now.
	Now func() time.Time
}

// NewHandler returns the handler that receives deliveries, or an error that names every problem of the configuration.
//
// It checks, in this order: method, content type, Content-Length → bearer token → the signature's form → the raw body, up to the
// limit → the signature → its time → the event id; then it begins a transaction, asks the inbox, calls Handle and commits. The
// answers:
//
//	200 {"duplicate":false}   handled and committed
//	200 {"duplicate":true}    it was handled before
//	400                       the id is missing or malformed, or not the body's; the body does not arrive whole; Malformed
//	401, empty                no or a wrong token, signature or time: the same for every cause
//	405 413 415               method, size, media type
//	409, Retry-After          the same event is being handled
//	422                       the id was seen with another body
//	other 4xx                 Refuse
//	500                       Handle returned any other error
//	503, Retry-After          TryAgain; or the database or the secrets are not there
func NewHandler[T any](c Config[T]) (http.Handler, error) {
	c.setDefaults()
	if err := c.check(); err != nil {
		return nil, fmt.Errorf("webhook configuration: %w", err)
	}
	return &receiver[T]{c}, nil
}

func (c *Config[T]) setDefaults() {
	signature, id := "Pillarbox-Signature", "Idempotency-Key"
	if c.Scheme == StandardWebhooks {
		signature, id = HeaderSignature, HeaderID
	}
	for _, header := range []struct {
		name    *string
		without string
	}{{&c.SignatureHeader, signature}, {&c.IDHeader, id}, {&c.TimestampHeader, HeaderTimestamp}} {
		if *header.name == "" {
			*header.name = header.without
		}
		*header.name = http.CanonicalHeaderKey(*header.name)
	}
	if c.MaxBodyBytes == 0 {
		c.MaxBodyBytes = 1 << 20
	}
	if c.Tolerance == 0 {
		c.Tolerance = DefaultTolerance
	}
	if c.RetryAfter == 0 {
		c.RetryAfter = time.Second
	}
	if c.SameBody == nil {
		c.SameBody = func(d Delivery) []byte { return d.Body }
	}
	if c.Log == nil {
		c.Log = slog.Default()
	}
	if c.Count == nil {
		c.Count = func(int, Reason) {}
	}
	if c.Now == nil {
		c.Now = time.Now
	}
}

func (c *Config[T]) check() error {
	var problems []error
	add := func(wrong bool, format string, args ...any) {
		if wrong {
			problems = append(problems, fmt.Errorf(format, args...))
		}
	}
	add(c.Consumer == "", "Consumer is empty: name it, as the inbox is to record it")
	add(c.Inbox == nil, "Inbox is nil: make one with inbox.New")
	add(c.Begin == nil, "Begin is nil: outbox.BeginSQL(db, nil) for example")
	add(c.Handle == nil, "Handle is nil: give the function that handles an event")
	add(c.Secrets == nil, "Secrets is nil: give a function that returns the active secrets")
	add(c.Scheme > StandardWebhooks, "Scheme is %d: use SHA256Hex or StandardWebhooks", c.Scheme)
	add(c.SignatureHeader == c.IDHeader, "SignatureHeader and IDHeader are both %s: they are two", c.IDHeader)
	for _, name := range []string{c.SignatureHeader, c.IDHeader, c.TimestampHeader} {
		add(strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r >= 0x7f || r == ':' }),
			"header name %q: use letters, digits and -", name)
	}
	for _, name := range c.ContentTypes {
		add(strings.ContainsAny(name, "; ") || !strings.Contains(name, "/"),
			"content type %q: give type/subtype, without parameters", name)
	}
	add(c.MaxBodyBytes < 0, "MaxBodyBytes is %d: give a positive number, or 0 for the default", c.MaxBodyBytes)
	add(c.Tolerance < time.Second || c.Tolerance > 24*time.Hour, "Tolerance is %v: choose from 1s to 24h", c.Tolerance)
	add(c.RetryAfter < time.Second || c.RetryAfter > 24*time.Hour, "RetryAfter is %v: choose from 1s to 24h", c.RetryAfter)
	return errors.Join(problems...)
}
