package http

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"time"

	"github.com/pillarbox-dev/pillarbox/envelope"
)

// Config is what a Destination is made of. The zero value of a field means its default.
type Config struct {
	// Endpoint is where everything goes. This or Endpoints is required.
	Endpoint Endpoint
	// Endpoints are where events go by name: StaticEndpoints, a Table, or a type of your own. An event whose endpoint
	// is not known or is disabled waits until that is mended; one that names none at all is rejected as NO_ENDPOINT.
	Endpoints Endpoints
	// EndpointHeader is the event header that names the endpoint. Default: the partition key names it.
	EndpointHeader string
	// MaxInFlight bounds the deliveries under way to one endpoint that has no limit of its own. Default 0: what
	// relay.DestinationConfig says under Concurrency, which is all of it when there is just one endpoint.
	MaxInFlight int

	// Method is POST or PUT. Default POST.
	Method string
	// Envelope makes what is sent and signed. Default: the payload as it is, and an empty body for a tombstone. Its headers win
	// over the event's and over Headers; those of HTTP itself and the signatures it cannot replace.
	Envelope envelope.Envelope
	// Signing says how the body is signed. Default: not at all.
	Signing Signing
	// Headers names what is sent about the event; EventHeaders says what becomes of its own headers.
	Headers      HeaderNames
	EventHeaders EventHeaders
	// UserAgent: default Pillarbox.
	UserAgent string

	// Profile and Overrides say what an answer means. Defaults: Default, none.
	Profile   Profile
	Overrides []Override
	// MaxRetryAfter caps what a receiver may ask for with Retry-After. Default 1 h.
	MaxRetryAfter time.Duration

	// TLS holds the trust and the certificate. Default: the system's trust, no certificate.
	TLS TLS
	// Proxy is the URL of a proxy, or ProxyEnvironment. Default: none. The address rule then holds for the address of
	// the proxy; which names it may resolve to what is the proxy's to decide.
	Proxy string
	// AllowPrivate allows every address, that of a cloud's metadata service too. Default: public ones alone.
	AllowPrivate bool
	// AllowAddresses are ranges to allow besides public ones: 10.1.0.0/16, fd00:1::/64, 127.0.0.1.
	AllowAddresses []string

	// Now is the clock, for signatures and for answers without a Date. Default time.Now.
	Now func() time.Time
}

// problems returns all that is wrong with the plain values.
func (c *Config) problems() (problems []error) {
	wrong := func(format string, args ...any) { problems = append(problems, fmt.Errorf(format, args...)) }
	switch static, isStatic := c.Endpoints.(StaticEndpoints); {
	case c.Endpoints == nil:
		problems = append(problems, c.Endpoint.problems(c.Signing)...)
		if c.EndpointHeader != "" {
			wrong("endpoint_header is set, but there is just one endpoint: set endpoints or take it out")
		}
	case c.Endpoint.URL != "":
		wrong("both url and endpoints are set: choose one")
	case isStatic:
		if len(static) == 0 {
			wrong("endpoints is empty: name at least one")
		}
		for _, name := range slices.Sorted(maps.Keys(static)) {
			e := static[name]
			for _, err := range e.problems(c.Signing) {
				wrong("endpoint %s: %w", quote(name), err)
			}
		}
	}
	if c.Method != "" && c.Method != http.MethodPost && c.Method != http.MethodPut {
		wrong("method is %s: it must be POST or PUT", quote(c.Method))
	}
	if c.UserAgent != headerValue(c.UserAgent) {
		wrong("user_agent %s cannot be sent in a header: write it on one line", quote(c.UserAgent))
	}
	if c.Profile != "" && c.Profile != Default && c.Profile != Strict {
		wrong("profile is %s: it must be %s or %s", quote(string(c.Profile)), Default, Strict)
	}
	if c.MaxRetryAfter < 0 {
		wrong("max_retry_after is %s: it must not be negative", c.MaxRetryAfter)
	}
	if c.MaxInFlight < 0 {
		wrong("max_in_flight is %d: it must not be negative", c.MaxInFlight)
	}
	return append(problems, c.TLS.problems()...)
}

// withDefaults returns the configuration with its defaults filled in and its URLs parsed.
func (c Config) withDefaults() Config {
	if c.Method == "" {
		c.Method = http.MethodPost
	}
	if c.Envelope == nil {
		c.Envelope, _ = envelope.New(envelope.Config{Target: envelope.HTTP}) // the payload alone has nothing to go wrong
	}
	if c.UserAgent == "" {
		c.UserAgent = "Pillarbox"
	}
	if c.MaxRetryAfter == 0 {
		c.MaxRetryAfter = time.Hour
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	c.Endpoint = c.Endpoint.prepared()
	if static, ok := c.Endpoints.(StaticEndpoints); ok {
		prepared := make(StaticEndpoints, len(static))
		for name, e := range static {
			prepared[name] = e.prepared()
		}
		c.Endpoints = prepared
	}
	return c
}
