package http

import (
	"net/http"
	"strings"
	"testing"

	"github.com/pillarbox-dev/pillarbox/relay"
)

// All that is wrong with a configuration is said at once, and without what may be a secret.
func TestNewReportsEverything(t *testing.T) {
	_, err := New(Config{
		Endpoint:       Endpoint{URL: "https://user:s3cret@host/?key=s3cret", MaxInFlight: -1},
		EndpointHeader: "supplier",
		MaxInFlight:    -1,
		Method:         "GET",
		Signing:        Signing{Hex: true, HexHeader: "-", Standard: true, StandardPrefix: "a b"},
		Headers:        HeaderNames{Idempotency: "Content-Length", ID: "x y", Type: "X-Same", Topic: "x-same"},
		EventHeaders:   EventHeaders{Prefix: "a:", Rename: map[string]string{"a": "", "b": "Host", "c": "X-Same"}},
		UserAgent:      "a\r\nX: y",
		Profile:        "lenient",
		MaxRetryAfter:  -1,
		TLS:            TLS{CertFile: "cert.pem"},
		Proxy:          "http://user:s3cret@proxy:3128",
		AllowAddresses: []string{"inside"},
	})
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{
		"url holds a user", "no secret to sign with", "max_in_flight is -1", "endpoint_header is set", "method is",
		"hex_header must not be -",
		`"a b-Id"`, `"a b-Timestamp"`, `"a b-Signature"`, "headers.idempotency: Content-Length is taken", "headers.id",
		"headers.topic: x-same is taken",
		"event_headers.prefix", `rename: "" is no`, "rename: Host is taken", "rename: X-Same is taken", "user_agent", "profile is",
		"max_retry_after",
		"belong together", "proxy holds a user", "allow_addresses",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("missing: %s", want)
		}
	}
	if strings.Contains(err.Error(), "s3cret") {
		t.Errorf("the error shows a secret:\n%v", err)
	}
	if t.Failed() {
		t.Log(err)
	}
}

func TestNewRefuses(t *testing.T) {
	one := Endpoint{URL: "https://a"}
	for name, tt := range map[string]struct {
		config Config
		want   string
	}{
		"nothing":           {Config{}, "url is empty"},
		"both":              {Config{Endpoint: one, Endpoints: StaticEndpoints{"a": one}}, "choose one"},
		"no endpoints":      {Config{Endpoints: StaticEndpoints{}}, "endpoints is empty"},
		"a bad endpoint":    {Config{Endpoints: StaticEndpoints{"good": one, "bad": {}}}, `endpoint "bad": url is empty`},
		"no scheme":         {Config{Endpoint: Endpoint{URL: "host/path"}}, `scheme ""`},
		"ftp":               {Config{Endpoint: Endpoint{URL: "ftp://host"}}, `scheme "ftp"`},
		"no host":           {Config{Endpoint: Endpoint{URL: "https:///path"}}, "no host"},
		"port alone":        {Config{Endpoint: Endpoint{URL: "https://:443/"}}, "no host"},
		"not ASCII":         {Config{Endpoint: Endpoint{URL: "https://bücher.example"}}, "xn--"},
		"unparsable":        {Config{Endpoint: Endpoint{URL: "https://host/%zz"}}, "cannot be parsed"},
		"secret unused":     {Config{Endpoint: Endpoint{URL: "https://a", SecretFiles: []string{"f"}}}, "nothing is signed"},
		"proxy scheme":      {Config{Endpoint: one, Proxy: "ftp://proxy"}, `scheme "ftp"`},
		"proxy no URL":      {Config{Endpoint: one, Proxy: "proxy:3128"}, "proxy"},
		"key without cert.": {Config{Endpoint: one, TLS: TLS{KeyFile: "k"}}, "belong together"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := New(tt.config); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("New: %v, want %q", err, tt.want)
			}
		})
	}
}

func TestEndpointsByHeader(t *testing.T) {
	at := func(name string) string {
		return newServer(t, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("X", name)
			w.WriteHeader(200 + len(name))
		}).URL
	}
	d, err := New(Config{
		Endpoints:      StaticEndpoints{"a": {URL: at("a"), MaxInFlight: 3}, "bb": {URL: at("bb")}},
		EndpointHeader: "supplier", AllowPrivate: true, MaxInFlight: 9,
	})
	if err != nil {
		t.Fatal(err)
	}
	with := func(headers string) *relay.Event {
		return newEvent(func(e *relay.Event) { e.Headers = []byte(headers) })
	}
	for _, tt := range []struct {
		headers, endpoint string
		want              relay.Outcome
	}{
		{`{"supplier":"a"}`, "a", relay.Outcome{Kind: relay.Published, Receipt: "201"}},
		{`{"supplier":"bb"}`, "bb", relay.Outcome{Kind: relay.Published, Receipt: "202"}},
		{`{"supplier":"ccc"}`, "ccc", paused(CodeConfig, `"ccc" is not known`)},
		{`{"Supplier":"a"}`, "", *reject(CodeNoTarget, `no header "supplier"`)},
		{`{}`, "", *reject(CodeNoTarget, "repair the headers")},
		{`{"supplier":7}`, "", *reject(CodeHeaders, "not a flat JSON object")},
	} {
		e := with(tt.headers)
		if got := d.Endpoint(e); got != tt.endpoint {
			t.Errorf("%s: endpoint %q, want %q", tt.headers, got, tt.endpoint)
		}
		same(t, deliver(t, d, e), tt.want)
	}
	for name, want := range map[string]int{"a": 3, "bb": 9, "ccc": 9} {
		if got := d.EndpointLimit(name); got != want {
			t.Errorf("EndpointLimit(%q) = %d, want %d", name, got, want)
		}
	}
	one := newDestination(t, "https://one.example")
	if got := one.Endpoint(newEvent()); got != "" {
		t.Errorf("with one endpoint: %q, want none named", got)
	}
	if one.Several() || !d.Several() {
		t.Errorf("Several() = %v with one endpoint, %v with a table of them", one.Several(), d.Several())
	}
}

// An endpoint called "" takes what names none.
func TestDefaultEndpoint(t *testing.T) {
	server := newServer(t, status(200))
	d, err := New(Config{Endpoints: StaticEndpoints{"": {URL: server.URL}}, EndpointHeader: "supplier", AllowPrivate: true})
	if err != nil {
		t.Fatal(err)
	}
	same(t, deliver(t, d, newEvent()), relay.Outcome{Kind: relay.Published, Receipt: "200"})
}

// Check sends nothing, passes over what is disabled, and names the endpoint of each problem.
func TestCheck(t *testing.T) {
	up := newServer(t, func(http.ResponseWriter, *http.Request) { t.Error("Check sent a request") })
	down := newServer(t, status(200))
	down.Close()
	d, err := New(Config{
		Endpoints: StaticEndpoints{
			"up": {URL: up.URL}, "down": {URL: down.URL}, "off": {URL: down.URL, Disabled: true},
			"nowhere": {URL: "https://no..name/"}, "closed": {URL: up.URL, TokenFile: t.TempDir() + "/none"},
		},
		AllowPrivate: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	problems := d.Check(t.Context())
	if len(problems) != 3 {
		t.Fatalf("Check = %v, want 3 problems", problems)
	}
	for i, want := range [][]string{
		{`endpoint "closed"`, "token_file", "mount it"},
		{`endpoint "down"`, "DIAL", "refused", "check that the endpoint is up"},
		{`endpoint "nowhere"`, "DNS", "check the url's host"},
	} {
		for _, part := range want {
			if !strings.Contains(problems[i].Error(), part) {
				t.Errorf("problem %d: %v, want %q in it", i, problems[i], part)
			}
		}
	}
}
