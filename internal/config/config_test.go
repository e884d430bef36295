package config

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/pillarbox-dev/pillarbox/destination/http"
	"github.com/pillarbox-dev/pillarbox/outbox/schema"
	"github.com/pillarbox-dev/pillarbox/relay"
)

// The example of the README.
const supplier = `
database: {url: "postgres://app@localhost/app", schema: integration}    # or sqlite:///var/lib/app/app.db
listen: 127.0.0.1:9470
relay: {lease: 15s}
destinations:
  suppliers:
    topics: ["linkostar.*"]
    http:
      url: https://supplier.example/hook
      signature: {scheme: sha256-hex, header: X-LinkOStar-Signature, secret_file: /run/secrets/supplier}
      idempotency_header: X-LinkOStar-Idempotency-Key
    retry: {base: 1m, factor: 2, max_attempts: 8}
`

func TestParse(t *testing.T) {
	c, err := Parse("pillarbox.yaml", []byte(supplier), noVariables)
	if err != nil {
		t.Fatal(err)
	}
	r := c.RelayConfig()
	if got, want := r.Lease, 15*time.Second; got != want {
		t.Errorf("lease = %v, want %v", got, want)
	}
	d := r.Destinations[0]
	if d.Name != "suppliers" || !d.Topics.Match("linkostar.order") || d.Topics.Match("other") {
		t.Errorf("destination = %+v, want suppliers for linkostar.*", d)
	}
	if d.Retry.Base != time.Minute || d.Retry.Factor != 2 || d.Retry.MaxAttempts != 8 {
		t.Errorf("retry = %+v, want 1m, 2, 8", d.Retry)
	}
	h := c.Destinations["suppliers"].HTTP.Config()
	if h.Endpoint.URL != "https://supplier.example/hook" || h.Endpoint.SecretFiles[0] != "/run/secrets/supplier" {
		t.Errorf("endpoint = %+v, want the supplier's", h.Endpoint)
	}
	if !h.Signing.Hex || h.Signing.Standard || h.Signing.HexHeader != "X-LinkOStar-Signature" {
		t.Errorf("signing = %+v, want sha256-hex alone", h.Signing)
	}
	if got, want := h.Headers.Idempotency, "X-LinkOStar-Idempotency-Key"; got != want {
		t.Errorf("idempotency header = %q, want %q", got, want)
	}
	if c.Database.Dialect() != schema.Postgres || c.Database.SchemaName() != "integration" || c.Listen != "127.0.0.1:9470" {
		t.Errorf("database and listen = %+v, %q", c.Database, c.Listen)
	}
}

func noVariables(string) (string, bool) { return "", false }

// Each key of a destination reaches the relay.
func TestRelayConfig(t *testing.T) {
	c := parse(t, `
database: {url: sqlite:data/app.db}
relay: {lease: 1m, drain: 3s, owner: me}
destinations:
  all:
    topics: [a, "b.*"]
    start: end
    ledger: false
    timeout: 20s
    concurrency: 7
    max_in_flight: 5000
    max_in_flight_bytes: 2MiB
    max_held_lanes: 9
    retry: {jitter: 0, max_attempts: 3, delays: [5s, 1d]}
    on_quarantine: hold
    charge_outages: true
    error_text: false
    breaker: {failures: 3, rate: 0.5, min_samples: 4, window: 1m, probe: 2s, max_probe: 3s, pause_probe: 4s}
    guard: {rejects: 5, rate: 0.25, min_samples: 6, window: 7s}
    http: {url: "https://a.example"}
  few:
    shards: 1
    guard: {enabled: false}
    http: {url: "https://b.example"}
`)
	r := c.RelayConfig()
	if r.Lease != time.Minute || r.Drain != 3*time.Second {
		t.Errorf("lease, drain = %v, %v, want 1m, 3s", r.Lease, r.Drain)
	}
	want := relay.DestinationConfig{
		Name: "all", Topics: relay.Topics{"a", "b.*"}, StartAtEnd: true, NoLedger: true, Timeout: 20 * time.Second,
		Concurrency: 7, MaxInFlight: 5000, MaxInFlightBytes: 2 << 20, MaxHeldLanes: 9,
		Retry: relay.RetryPolicy{Jitter: -1, MaxAttempts: 3, Delays: []time.Duration{5 * time.Second, 24 * time.Hour}},

		OnQuarantine: relay.Hold, ChargeOutages: true, CodeOnly: true,
		Breaker: relay.BreakerConfig{Failures: 3, Rate: 0.5, MinSamples: 4, Window: time.Minute,
			Probe: 2 * time.Second, MaxProbe: 3 * time.Second, PauseProbe: 4 * time.Second},
		Guard: relay.GuardConfig{Rejects: 5, Rate: 0.25, MinSamples: 6, Window: 7 * time.Second},
	}
	if got := r.Destinations[0]; !reflect.DeepEqual(got, want) {
		t.Errorf("destination:\n got %+v\nwant %+v", got, want)
	}
	want = relay.DestinationConfig{Name: "few", Shards: 1, Guard: relay.GuardConfig{Rejects: -1}}
	if got := r.Destinations[1]; !reflect.DeepEqual(got, want) {
		t.Errorf("destination:\n got %+v\nwant %+v", got, want)
	}
}

// A relay gets two connections for each shard of each destination, within bounds; one that gets less is told so.
func TestConnections(t *testing.T) {
	for _, tt := range []struct {
		database, shards string
		want             int
		tooFew           string
	}{
		{"{url: postgres://localhost/app}", "1", 10, ""},
		{"{url: postgres://localhost/app}", "16", 34, ""},
		{"{url: postgres://localhost/app}", "63", 40, "64 shards of destinations use up to 128 connections"},
		{"{url: postgres://localhost/app, max_connections: 200}", "63", 200, ""},
		{"{url: postgres://localhost/app, max_connections: 5}", "2", 5, "set database.max_connections to 6"},
		{"{url: sqlite:///a.db}", "1", 0, ""},
	} {
		c := parse(t, fmt.Sprintf("database: %s\ndestinations: {a: {http: {url: https://a.example}}, b: {shards: %s, http: {url: https://b.example}}}\n",
			tt.database, tt.shards))
		if got := c.RelayDatabase().MaxConnections; got != tt.want {
			t.Errorf("%s and %s shards: %d connections, want %d", tt.database, tt.shards, got, tt.want)
		}
		if got := c.TooFewConnections(); !strings.Contains(got, tt.tooFew) || (got == "") != (tt.tooFew == "") {
			t.Errorf("%s and %s shards: advice %q, want %q", tt.database, tt.shards, got, tt.tooFew)
		}
	}
}

// What an endpoint leaves out is the destination's, and a bare code is a reject.
func TestHTTPConfig(t *testing.T) {
	c := parse(t, `
database: {url: "postgres://app:${SECRET}@localhost/app"}
destinations:
  a:
    http:
      signature: {scheme: [sha256-hex, standard-webhooks], secret_file: /s, secret_files: [/next]}
      token: ${SECRET}
      max_in_flight: 3
      answers: {402: REJECTED_BALANCE, 404: retry, 5xx: unavailable}
      endpoints:
        plain: {url: "https://plain.example"}
        own: {url: "https://own.example", secret: "${SECRET}", token_file: /t, max_in_flight: 2, enabled: false}
`)
	h := c.Destinations["a"].HTTP.Config()
	want := http.StaticEndpoints{
		"plain": {URL: "https://plain.example", SecretFiles: []string{"/s", "/next"}, Token: "s3cret"},
		"own":   {URL: "https://own.example", Secret: "s3cret", TokenFile: "/t", MaxInFlight: 2, Disabled: true},
	}
	if !reflect.DeepEqual(h.Endpoints, want) {
		t.Errorf("endpoints:\n got %+v\nwant %+v", h.Endpoints, want)
	}
	if !h.Signing.Hex || !h.Signing.Standard {
		t.Errorf("signing = %+v, want both", h.Signing)
	}
	overrides := []http.Override{
		{First: 402, Last: 402, Kind: relay.Reject, Code: "REJECTED_BALANCE"},
		{First: 404, Last: 404, Kind: relay.Retry},
		{First: 500, Last: 599, Kind: relay.Unavailable},
	}
	if !reflect.DeepEqual(h.Overrides, overrides) {
		t.Errorf("overrides:\n got %+v\nwant %+v", h.Overrides, overrides)
	}
	if got, want := c.Destinations["a"].HTTP.Codes(), []string{"REJECTED_BALANCE"}; !slices.Equal(got, want) {
		t.Errorf("codes = %q, want %q", got, want)
	}
}

// However a configuration is printed, it shows no secret.
func TestPrintedWithoutSecrets(t *testing.T) {
	c := parse(t, `
database: {url: "postgres://app:${SECRET}@localhost/app?sslmode=disable&sslpassword=${SECRET}"}
destinations:
  a:
    timeout: 2s
    http:
      url: https://a.example/hook?key=${SECRET}
      signature: {scheme: sha256-hex, secret: "${SECRET}"}
      token: ${SECRET}
`)
	asJSON, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	slog.New(slog.NewTextHandler(&log, nil)).Info("configuration", "config", c, "destinations", c.Destinations)
	printed := map[string]string{"String": c.String(), "JSON": string(asJSON), "slog": log.String()}
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%d", "%x"} {
		printed[verb] = fmt.Sprintf(verb, *c.Destinations["a"].HTTP) + fmt.Sprintf(verb, c.Database)
	}
	for name, text := range printed {
		if strings.Contains(text, "s3cret") {
			t.Errorf("%s shows a secret: %s", name, text)
		}
	}
	for _, want := range []string{"timeout: 2s", "token: (hidden)", "postgres://app:xxx@localhost/app?sslmode=disable&sslpassword=xxx"} {
		if !strings.Contains(c.String(), want) {
			t.Errorf("String lacks %q:\n%s", want, c)
		}
	}
}

func parse(t *testing.T, text string) *Config {
	t.Helper()
	c, err := Parse("pillarbox.yaml", []byte(text), testVariables)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func FuzzParse(f *testing.F) {
	f.Add(supplier)
	f.Add(Example())
	f.Add("database: {url: '${A:-sqlite:///b}'}\ndestinations: {a: {timeout: 1d, http: {url: 'http://c'}}}")
	f.Add("a: [&b {c: !!int d}, *b, <<: *b]\n---\n")
	f.Fuzz(func(t *testing.T, text string) {
		c, err := Parse("f.yaml", []byte(text), testVariables)
		if err == nil {
			if _, err := yaml.Marshal(c); err != nil {
				t.Errorf("what was read cannot be printed: %v", err)
			}
			return
		}
		var problems Problems
		if !errors.As(err, &problems) || len(problems) == 0 {
			t.Fatalf("%T is not Problems: %v", err, err)
		}
		for _, p := range problems {
			if p.Line < 0 || p.Line > strings.Count(text, "\n")+strings.Count(text, "\r")+2 || p.Text == "" {
				t.Errorf("no place in the file: %+v", p)
			}
		}
	})
}

func TestDashboard(t *testing.T) {
	const base = "database: {url: \"sqlite:///a.db\"}\ndestinations: {a: {http: {url: \"https://a.example\"}}}\n"
	for _, tt := range []struct {
		text           string
		served, masked bool
	}{
		{"listen: 127.0.0.1:0\n", true, true},
		{"", false, true},
		{"listen: 127.0.0.1:0\ndashboard: {enabled: false, mask_operators: false}\n", false, false},
		{"listen: 0.0.0.0:1\nallow_remote: true\ndashboard: {enabled: false}\n", false, true},
		{"listen: 0.0.0.0:1\nallow_remote: true\ndashboard: {users: [{name: ops, role: viewer, password_file: /p}]}\n", true, true},
	} {
		c, err := Parse("f.yaml", []byte(base+tt.text), noVariables)
		if err != nil {
			t.Errorf("%s: %v", tt.text, err)
			continue
		}
		if got := c.ServesDashboard(); got != tt.served {
			t.Errorf("%s: served %v, want %v", tt.text, got, tt.served)
		}
		if got := c.Dashboard.MasksOperators(); got != tt.masked {
			t.Errorf("%s: masks operators %v, want %v", tt.text, got, tt.masked)
		}
	}
}
