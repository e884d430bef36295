package http

import (
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pillarbox-dev/pillarbox/envelope"
	"github.com/pillarbox-dev/pillarbox/outbox/webhook"
	"github.com/pillarbox-dev/pillarbox/relay"
)

// received is what a receiver got.
type received struct {
	method string
	url    string
	header http.Header
	body   string
	length int64
	coding []string
}

// receive delivers an event to a receiver of its own and returns what arrived.
func receive(t *testing.T, e *relay.Event, changes ...func(*Config)) received {
	t.Helper()
	var got received
	server := newServer(t, func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		got = received{r.Method, r.URL.String(), r.Header, string(body), r.ContentLength, r.TransferEncoding}
	})
	d := newDestination(t, server.URL+"/in?v=1", changes...)
	same(t, deliver(t, d, e), relay.Outcome{Kind: relay.Published, Receipt: "200"})
	return got
}

func TestRequest(t *testing.T) {
	got := receive(t, newEvent(), func(c *Config) {
		c.Endpoint.TokenFile = secretFile(t, " a-token\n")
		c.Endpoint.SecretFiles = []string{secretFile(t, "It's a Secret to Everybody\n"), secretFile(t, "other")}
		c.Signing = Signing{Hex: true, HexHeader: "X-Shop-Signature"}
	})
	if got.method != "POST" || got.url != "/in?v=1" || got.body != `{"case":"CASE-1","amount":1.0}` || got.coding != nil {
		t.Errorf("received %+v", got)
	}
	want := http.Header{
		"Authorization":        {"Bearer a-token"},
		"Content-Length":       {"30"},
		"Content-Type":         {"application/json"},
		"Idempotency-Key":      {"0190a1b2-0000-7000-8000-000000000001"},
		"Pillarbox-Event-Id":   {"0190a1b2-0000-7000-8000-000000000001"},
		"Pillarbox-Event-Type": {"CaseAccepted"},
		"Pillarbox-Topic":      {"cases"},
		"User-Agent":           {"Pillarbox"},
		"X-Shop-Signature":     {webhook.SignHex([]byte("It's a Secret to Everybody"), []byte(got.body))},
	}
	sameHeader(t, got.header, want)
}

// wrap makes an envelope of a function.
type wrap func(*relay.Event) (envelope.Message, error)

func (w wrap) Wrap(e *relay.Event) (envelope.Message, error) { return w(e) }

func sameHeader(t testing.TB, got, want http.Header) {
	t.Helper()
	for _, name := range slices.Sorted(maps.Keys(want)) {
		if !slices.Equal(got[name], want[name]) {
			t.Errorf("%s: got %q, want %q", name, got[name], want[name])
		}
	}
	for _, name := range slices.Sorted(maps.Keys(got)) {
		if _, ok := want[name]; !ok {
			t.Errorf("%s: %q was not expected", name, got[name])
		}
	}
}

func TestRequestVariants(t *testing.T) {
	for name, tt := range map[string]struct {
		event  func(*relay.Event)
		config func(*Config)
		check  func(received) bool
	}{
		"tombstone": {func(e *relay.Event) { e.Payload = nil }, nil, func(r received) bool {
			return r.body == "" && r.length == 0 && r.coding == nil && r.header["Content-Type"] == nil
		}},
		"binary": {func(e *relay.Event) { e.Payload, e.Binary = []byte{0xff, 0xfe, 0}, true }, nil, func(r received) bool {
			return r.body == "\xff\xfe\x00" && r.header.Get("Content-Type") == "application/octet-stream"
		}},
		"put": {nil, func(c *Config) { c.Method = "PUT" }, func(r received) bool { return r.method == "PUT" }},
		"an envelope": {nil, func(c *Config) {
			c.Envelope = wrap(func(e *relay.Event) (envelope.Message, error) {
				return envelope.Message{Value: []byte("<" + e.ID + ">"), ContentType: "text/xml", Headers: []envelope.Header{
					{Name: "ce-id", Value: []byte(e.ID)}, {Name: "pillarbox-topic", Value: []byte("other")},
					{Name: "host", Value: []byte("elsewhere")}, {Name: "Pillarbox-Signature", Value: []byte("fake")},
				}}, nil
			})
			c.Signing.Hex, c.Endpoint.Secret = true, "s3cret"
		}, func(r received) bool {
			return r.body == "<0190a1b2-0000-7000-8000-000000000001>" && r.header.Get("Content-Type") == "text/xml" &&
				r.header.Get("Ce-Id") == "0190a1b2-0000-7000-8000-000000000001" && r.header.Get("Pillarbox-Topic") == "other" &&
				r.header.Get("Pillarbox-Signature") == webhook.SignHex([]byte("s3cret"), []byte(r.body))
		}},
		"names left out": {nil, func(c *Config) { c.Headers = HeaderNames{"-", "-", "-", "-"} }, func(r received) bool {
			return r.header["Idempotency-Key"] == nil && r.header["Pillarbox-Event-Id"] == nil && r.header["Pillarbox-Topic"] == nil
		}},
		"names changed": {nil, func(c *Config) {
			c.Headers = HeaderNames{"x-key", "x-id", "x-type", "x-topic"}
		}, func(r received) bool {
			return r.header.Get("X-Key") != "" && r.header.Get("X-Key") == r.header.Get("X-Id") &&
				r.header.Get("X-Type") == "CaseAccepted" && r.header.Get("X-Topic") == "cases"
		}},
		"type and topic made fit": {func(e *relay.Event) { e.Type, e.Topic = "a\r\nb: c", "\tü " }, nil, func(r received) bool {
			return r.header.Get("Pillarbox-Event-Type") == "a  b: c" && r.header.Get("Pillarbox-Topic") == "ü"
		}},
		"user agent": {nil, func(c *Config) { c.UserAgent = "shop/1.0" }, func(r received) bool {
			return r.header.Get("User-Agent") == "shop/1.0"
		}},
		"large": {func(e *relay.Event) { e.Payload = make([]byte, 5<<20) }, nil, func(r received) bool {
			return len(r.body) == 5<<20
		}},
	} {
		t.Run(name, func(t *testing.T) {
			e := newEvent()
			if tt.event != nil {
				tt.event(e)
			}
			config := tt.config
			if config == nil {
				config = func(*Config) {}
			}
			if got := receive(t, e, config); !tt.check(got) {
				got.body = fmt.Sprintf("%.100s", got.body)
				t.Errorf("received %+v", got)
			}
		})
	}
}

func TestEventHeaders(t *testing.T) {
	e := newEvent(func(e *relay.Event) {
		e.Headers = []byte(`{"correlationId":"c-1","trace parent":"00","empty":"",` +
			`"évil\r\nX-Injected":"v","multi":"a\r\nB: c\u0000",` +
			`"authorization":"Bearer stolen","Host":"elsewhere","content-length":"1","Transfer-Encoding":"x",` +
			`"idempotency-key":"other",` +
			`"webhook-signature":"v1,fake","pillarbox-event-id":"fake","content-type":"text/html","Dup":"first","dup":"second",` +
			`"renamed":"r","dropped":"d","internal":"i","":"nameless"}`)
	})
	got := receive(t, e, func(c *Config) {
		c.EventHeaders = EventHeaders{Rename: map[string]string{"renamed": "X-Other", "dropped": "-", "internal": "-"}}
		c.Signing.Standard = true
		c.Endpoint.SecretFiles = []string{secretFile(t, "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")}
	})
	for _, signed := range []string{"Webhook-Id", "Webhook-Timestamp", "Webhook-Signature"} {
		if got.header[signed][0] == "v1,fake" {
			t.Error("an event header replaced a signature")
		}
		delete(got.header, signed)
	}
	sameHeader(t, got.header, http.Header{
		"Content-Length": {"30"}, "Content-Type": {"application/json"}, "User-Agent": {"Pillarbox"},
		"Idempotency-Key": {e.ID}, "Pillarbox-Event-Id": {e.ID}, "Pillarbox-Event-Type": {"CaseAccepted"},
		"Pillarbox-Topic": {"cases"}, "Correlationid": {"c-1"}, "Trace-Parent": {"00"}, "Empty": {""}, "-Vil--X-Injected": {"v"}, "Multi": {"a  B: c"},
		"Dup": {"first"}, "X-Other": {"r"},
	})
	got = receive(t, e, func(c *Config) { c.EventHeaders = EventHeaders{Prefix: "Evt-"} })
	if got.header.Get("Evt-Correlationid") != "c-1" || got.header.Get("Evt-Authorization") != "Bearer stolen" ||
		got.header["Authorization"] != nil || got.header["Correlationid"] != nil {
		t.Errorf("with a prefix: %v", got.header)
	}
	got = receive(t, e, func(c *Config) { c.EventHeaders = EventHeaders{Omit: true} })
	if len(got.header) != 8-1 {
		t.Errorf("omitted: %v", got.header)
	}
}

// What is about the event and cannot be sent is rejected, and nothing goes out.
func TestUnsendableEvents(t *testing.T) {
	server := newServer(t, func(http.ResponseWriter, *http.Request) { t.Error("something was sent") })
	with := func(headers string) func(*relay.Event) { return func(e *relay.Event) { e.Headers = []byte(headers) } }
	failing := func(err error) func(*Config) {
		return func(c *Config) {
			c.Envelope = wrap(func(*relay.Event) (envelope.Message, error) { return envelope.Message{}, err })
		}
	}
	for name, tt := range map[string]struct {
		event  func(*relay.Event)
		config func(*Config)
		want   relay.Outcome
	}{
		"headers no object": {with(`["a"]`), nil, *reject(CodeHeaders, "not a flat JSON object")},
		"nested headers":    {with(`{"a":{"b":1}}`), nil, *reject(CodeHeaders, "repair the headers")},
		"no id":             {func(e *relay.Event) { e.ID = "" }, nil, *reject(CodeHeaders, "event id")},
		"id with newline":   {func(e *relay.Event) { e.ID = "a\nb" }, nil, *reject(CodeHeaders, "event id")},
		"id with space":     {func(e *relay.Event) { e.ID = " a" }, nil, *reject(CodeHeaders, "event id")},
		"cannot be wrapped": {nil, failing(&envelope.InvalidError{Problem: "no case", Hint: "add one"}),
			*reject(envelope.CodeInvalid, "no case: add one")},
		"wrapped too slowly": {nil, failing(envelope.ErrTimeout), relay.Outcome{Code: envelope.CodeTimeout}},
	} {
		t.Run(name, func(t *testing.T) {
			e := newEvent()
			if tt.event != nil {
				tt.event(e)
			}
			var changes []func(*Config)
			if tt.config != nil {
				changes = append(changes, tt.config)
			}
			same(t, deliver(t, newDestination(t, server.URL, changes...), e), tt.want)
		})
	}
	bad := newDestination(t, server.URL, func(c *Config) {
		c.Envelope = wrap(func(*relay.Event) (envelope.Message, error) {
			return envelope.Message{Value: []byte("x"), ContentType: "text/plain\r\nX: y"}, nil
		})
	})
	same(t, deliver(t, bad, newEvent()), paused(CodeConfig, "content type"))
}

func TestStandardWebhooks(t *testing.T) {
	now := time.Unix(1_900_000_000, 0)
	files := []string{secretFile(t, "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"), secretFile(t, "c2Vjb25kIHNlY3JldA==")}
	got := receive(t, newEvent(), func(c *Config) {
		c.Signing = Signing{Standard: true, StandardPrefix: "svix", Hex: true}
		c.Endpoint.SecretFiles = files
		c.Now = func() time.Time { return now }
	})
	headers := webhook.Standard{
		ID: got.header.Get("svix-id"), Timestamp: got.header.Get("svix-timestamp"), Signature: got.header.Get("svix-signature"),
	}
	if headers.ID != newEvent().ID || headers.Timestamp != "1900000000" || strings.Count(headers.Signature, " ") != 1 {
		t.Errorf("headers %+v", headers)
	}
	for _, text := range []string{"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "c2Vjb25kIHNlY3JldA=="} {
		secret, err := webhook.ParseSecret(text)
		if err != nil {
			t.Fatal(err)
		}
		if err := webhook.VerifyStandard([][]byte{secret}, headers, []byte(got.body), now, 0); err != nil {
			t.Errorf("with %s alone: %v", text, err)
		}
	}
	// The hex signature is made with the first file's text, as it is.
	hex := got.header.Get("Pillarbox-Signature")
	if err := webhook.VerifyHex([][]byte{[]byte("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")}, []byte(got.body), hex); err != nil {
		t.Error(err)
	}
}

// Each attempt is signed at its own time: a receiver refuses a signature that is too old.
func TestSignedAnew(t *testing.T) {
	now := time.Unix(1_900_000_000, 0)
	var times []string
	server := newServer(t, func(w http.ResponseWriter, r *http.Request) {
		times = append(times, r.Header.Get("webhook-timestamp"))
		w.WriteHeader(http.StatusMisdirectedRequest) // asks for a second send within the attempt
	})
	d := newDestination(t, server.URL, func(c *Config) {
		c.Signing.Standard = true
		c.Endpoint.SecretFiles = []string{secretFile(t, "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")}
		c.Now = func() time.Time { now = now.Add(10 * time.Minute); return now }
	})
	deliver(t, d, newEvent())
	deliver(t, d, newEvent())
	if len(times) != 4 || len(slices.Compact(slices.Clone(times))) != 4 {
		t.Errorf("timestamps %v, want 4 different ones", times)
	}
}
