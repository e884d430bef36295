package http

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pillarbox-dev/pillarbox/envelope"
	"github.com/pillarbox-dev/pillarbox/outbox/webhook"
	"github.com/pillarbox-dev/pillarbox/relay"
)

// CodeHeaders is the code of a Reject: the event's headers are no flat object, or its id does not fit into a header.
const CodeHeaders = "HEADERS_INVALID"

// Signing says how a body is signed. Both may be on.
type Signing struct {
	// Hex sends "sha256=" and the hex of HMAC-SHA256 over the raw body. The secret is the file's text.
	Hex bool
	// HexHeader carries it. Default Pillarbox-Signature.
	HexHeader string
	// Standard signs as https://www.standardwebhooks.com says. The secrets are base64, usually with whsec_ before it.
	Standard bool
	// StandardPrefix begins its three headers, -Id, -Timestamp and -Signature. Default Webhook.
	StandardPrefix string
}

func (s Signing) any() bool { return s.Hex || s.Standard }

// HeaderNames are the headers that tell a receiver about the event. "-" leaves one out.
type HeaderNames struct {
	// Idempotency carries the event id as a key to dedupe by. Default Idempotency-Key.
	Idempotency string
	// ID, Type and Topic: defaults Pillarbox-Event-Id, Pillarbox-Event-Type, Pillarbox-Topic.
	ID, Type, Topic string
}

// EventHeaders says how the event's own headers are sent. They never replace one that the destination or HTTP itself needs.
type EventHeaders struct {
	// Omit sends none of them.
	Omit bool
	// Prefix goes before each name.
	Prefix string
	// Rename gives some of them another name, without the prefix; "-" leaves one out.
	Rename map[string]string
}

// reservedHeaders belong to HTTP, or carry credentials.
var reservedHeaders = []string{
	"Authorization", "Connection", "Content-Length", "Content-Type", "Cookie", "Expect", "Host", "Keep-Alive",
	"Proxy-Authorization", "Proxy-Connection", "Te", "Trailer", "Transfer-Encoding", "Upgrade", "User-Agent",
}

// headers knows under which keys of an http.Header everything is sent.
type headers struct {
	idempotency, id, kind, topic                string // "": not sent
	hex                                         string
	standardID, standardTime, standardSignature string
	count                                       int // how many of these are sent, with User-Agent and Content-Type

	event    EventHeaders
	reserved map[string]bool // by headerKey
}

// newHeaders fills in the defaults and checks the names.
func newHeaders(c Config) (h headers, problems []error) {
	h.event = c.EventHeaders
	h.count = 2
	h.reserved = map[string]bool{}
	for _, name := range reservedHeaders {
		h.reserved[name] = true
	}
	key := func(setting, name, fallback string) string {
		if name == "" {
			name = fallback
		}
		key := headerKey(name)
		switch {
		case name == "-":
			return ""
		case !isHeaderName(name):
			problems = append(problems, fmt.Errorf("%s: %s is no header name: use letters, digits and -", setting, quote(name)))
		case h.reserved[key]:
			problems = append(problems, fmt.Errorf("%s: %s is taken: choose another name", setting, name))
		}
		h.reserved[key] = true
		h.count++
		return key
	}
	h.idempotency = key("headers.idempotency", c.Headers.Idempotency, "Idempotency-Key")
	h.id = key("headers.id", c.Headers.ID, "Pillarbox-Event-Id")
	h.kind = key("headers.type", c.Headers.Type, "Pillarbox-Event-Type")
	h.topic = key("headers.topic", c.Headers.Topic, "Pillarbox-Topic")
	if c.Signing.Hex {
		if h.hex = key("signing.hex_header", c.Signing.HexHeader, "Pillarbox-Signature"); h.hex == "" {
			problems = append(problems, errors.New("signing.hex_header must not be -: nothing goes out unsigned; give it a name"))
		}
	}
	if c.Signing.Standard {
		prefix := c.Signing.StandardPrefix
		if prefix == "" {
			prefix = "Webhook"
		}
		h.standardID = key("signing.standard_prefix", prefix+"-Id", "")
		h.standardTime = key("signing.standard_prefix", prefix+"-Timestamp", "")
		h.standardSignature = key("signing.standard_prefix", prefix+"-Signature", "")
	}
	if p := c.EventHeaders.Prefix; p != "" && !isHeaderName(p) {
		problems = append(problems, fmt.Errorf("event_headers.prefix: %s cannot begin a header name: use letters, digits and -",
			quote(p)))
	}
	for _, from := range slices.Sorted(maps.Keys(c.EventHeaders.Rename)) {
		to := c.EventHeaders.Rename[from]
		switch {
		case to == "-":
		case !isHeaderName(to):
			problems = append(problems, fmt.Errorf("event_headers.rename: %s is no header name: use letters, digits and -",
				quote(to)))
		case h.reserved[headerKey(to)]:
			problems = append(problems, fmt.Errorf("event_headers.rename: %s is taken: choose another name", to))
		}
	}
	return h, problems
}

// headerKey is the key under which a header stands in an http.Header. Go's transport looks for two of them by their usual
// spelling, to replay a POST that has one by itself, as often as it likes. In lower case, which is the same header to
// every receiver, it does not see them, and how often something is sent stays our decision.
func headerKey(name string) string {
	key := http.CanonicalHeaderKey(name)
	if key == "Idempotency-Key" || key == "X-Idempotency-Key" {
		return strings.ToLower(key)
	}
	return key
}

// message is what is sent. Its header lacks the credentials yet.
type message struct {
	id     string
	body   []byte
	header http.Header
}

// compose makes the message of an event; what stops it is about the event and final.
func (d *Destination) compose(e *relay.Event) (m message, out *relay.Outcome) {
	if e.ID == "" || e.ID != headerValue(e.ID) {
		return m, reject(CodeHeaders, "the event id "+quote(e.ID)+" cannot be sent in a header, and a receiver dedupes by it: "+
			"discard the event and enqueue it again with another id")
	}
	wrapped, err := d.config.Envelope.Wrap(e)
	if err != nil {
		out := envelope.Outcome(err)
		return m, &out
	}
	var own map[string]string
	if !d.headers.event.Omit {
		if own, err = e.HeaderMap(); err != nil {
			return m, reject(CodeHeaders, err.Error()+": repair the headers, then retry")
		}
	}
	m = message{id: e.ID, body: wrapped.Value, header: make(http.Header, d.headers.count+len(own)+len(wrapped.Headers))}
	d.headers.addEvent(m.header, own)
	set(m.header, "User-Agent", d.config.UserAgent)
	set(m.header, d.headers.idempotency, e.ID)
	set(m.header, d.headers.id, e.ID)
	set(m.header, d.headers.kind, headerValue(e.Type))
	set(m.header, d.headers.topic, headerValue(e.Topic))
	for _, h := range wrapped.Headers {
		if key := headerKey(h.Name); !slices.Contains(reservedHeaders, key) {
			set(m.header, key, headerValue(string(h.Value)))
		}
	}
	if wrapped.ContentType != "" {
		set(m.header, "Content-Type", wrapped.ContentType)
	}
	return m, nil
}

// set sets a header that is not left out; its key is a headerKey.
func set(h http.Header, key, value string) {
	if key != "" {
		h[key] = []string{value}
	}
}

// addEvent makes the event's own headers fit to send. Of two that come out under one name the first by name is sent.
func (h *headers) addEvent(header http.Header, own map[string]string) {
	names := make([]string, 0, len(own))
	for name := range own {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		to, renamed := h.event.Rename[name]
		if !renamed {
			to = h.event.Prefix + headerName(name)
		}
		key := headerKey(to)
		if _, taken := header[key]; taken || to == "-" || to == "" || h.reserved[key] {
			continue
		}
		header[key] = []string{headerValue(own[name])}
	}
}

// sign puts the token and the signatures of the given time into the message's header.
func (d *Destination) sign(m *message, c credentials, at time.Time) error {
	if c.token != "" {
		set(m.header, "Authorization", "Bearer "+c.token)
	}
	if d.config.Signing.Hex {
		set(m.header, d.headers.hex, webhook.SignHex(c.secrets[0], m.body))
	}
	if d.config.Signing.Standard {
		secrets, err := c.standardSecrets()
		if err != nil {
			return err
		}
		set(m.header, d.headers.standardID, m.id)
		set(m.header, d.headers.standardTime, strconv.FormatInt(at.Unix(), 10))
		set(m.header, d.headers.standardSignature, webhook.SignStandard(secrets, m.id, at, m.body))
	}
	return nil
}

// isHeaderName tells whether a name is a token (RFC 9110 §5.6.2).
func isHeaderName(name string) bool { return name != "" && name == headerName(name) }

// headerName makes a token of a name: what cannot stand in one becomes -.
func headerName(name string) string {
	return strings.Map(func(r rune) rune {
		if r >= '0' && r <= '9' || r >= 'A' && r <= 'Z' || r >= 'a' && r <= 'z' || strings.ContainsRune("!#$%&'*+-.^_`|~", r) {
			return r
		}
		return '-'
	}, name)
}

// headerValue makes a value fit to send: control characters become spaces, and there is none at either end.
func headerValue(value string) string {
	clean := strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, value)
	return strings.TrimSpace(clean)
}

func reject(code, message string) *relay.Outcome {
	return &relay.Outcome{Kind: relay.Reject, Code: code, Message: message}
}

func quote(text string) string { return fmt.Sprintf("%q", printable(text)) }
