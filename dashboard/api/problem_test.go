package api_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/pillarbox-dev/pillarbox/dashboard/api"
	"github.com/pillarbox-dev/pillarbox/outbox/schema"
)

// What a request can get wrong, and how it is told. Everything that is wrong comes at once.
func TestProblems(t *testing.T) {
	onBoth(t, api.Config{}, func(b *box) {
		b.destination()
		seq := b.poison("evt-1", `{"a":1}`, `{}`)
		delivery := fmt.Sprintf("/destinations/d/deliveries/%d", seq)
		version := `"version":"` + b.version("evt-1") + `"`
		json := header("Content-Type", "application/json")
		for name, c := range map[string]struct {
			method, path, body string
			with               func(*http.Request)
			status             int
			kind               string
			errors             []string // where, in order
		}{
			"no credential":     {"GET", "/status", "", header("Authorization", ""), 401, "unauthorized", nil},
			"a wrong token":     {"GET", "/status", "", as("another token, not known"), 401, "unauthorized", nil},
			"a viewer acts":     {"POST", delivery + "/retry", `{` + version + `}`, as(viewer), 403, "forbidden", nil},
			"a viewer pauses":   {"POST", "/destinations/d/pause", `{"reason":"x"}`, as(viewer), 403, "forbidden", nil},
			"an unknown number": {"GET", "/events/99", "", nil, 404, "not-found", nil},
			"an unknown id":     {"GET", "/events/nobody's", "", nil, 404, "not-found", nil},
			"an unknown place":  {"POST", "/destinations/x/pause", `{"reason":"x"}`, nil, 404, "not-found", nil},
			"a list of none":    {"GET", "/events?destination=x", "", nil, 404, "not-found", nil},
			"another's page":    {"GET", "/events?after=abc", "", nil, 400, "malformed", []string{"after"}},
			"no sense": {"GET", "/events?from_seq=9&to_seq=3&since=2026-01-02T00:00:00Z&until=2026-01-01T00:00:00Z", "", nil,
				422, "refused", []string{"", ""}},
			"no body":         {"POST", delivery + "/retry", `{}`, nil, 428, "version-required", []string{"/version"}},
			"an old version":  {"POST", delivery + "/retry", `{"version":"1"}`, nil, 409, "conflict", nil},
			"not paused":      {"POST", "/destinations/d/resume", `{}`, nil, 409, "not-paused", nil},
			"nothing to mend": {"POST", delivery + "/repair", `{` + version + `}`, nil, 422, "refused", nil},
			"the same again":  {"POST", delivery + "/repair", `{` + version + `,"payload":{"a":1}}`, nil, 422, "refused", nil},
			"too large": {"POST", delivery + "/repair", `{` + version + `,"payload":"` + strings.Repeat("x", 2<<20) + `"}`, nil,
				413, "too-large", nil},
			"a job of nothing": {"POST", "/jobs", `{"kind":"retry","filter":{},"reason":"x"}`, nil, 422, "refused", nil},
			"a job without a reason": {"POST", "/jobs", `{"kind":"retry","filter":{"destination":"d"}}`, nil, 422, "invalid",
				[]string{"/reason"}},
			"another type": {"POST", delivery + "/retry", `{` + version + `}`, header("Content-Type", "text/plain"),
				415, "unsupported-media-type", nil},
			"no type": {"POST", delivery + "/retry", `{` + version + `}`, header("Content-Type", ""),
				415, "unsupported-media-type", nil},
			"no JSON":   {"POST", delivery + "/retry", `{"version":`, json, 400, "malformed", nil},
			"no object": {"POST", delivery + "/retry", `[1]`, json, 400, "malformed", nil},
			"null":      {"POST", delivery + "/retry", `null`, json, 400, "malformed", nil},
			"parameters": {"GET", "/events?limit=501&order=up&from_seq=0&to_seq=x&since=yesterday&destination=&limt=5&event_type=a" +
				"&event_type=b", "", nil, 400, "malformed",
				[]string{"destination", "event_type", "since", "from_seq", "to_seq", "limit", "order", "limt"}},
			"parameters of an action": {"POST", delivery + "/retry?force=1", `{` + version + `}`, nil, 400, "malformed",
				[]string{"force"}},
			"fields": {"POST", delivery + "/repair",
				`{"reason":7,"payload":1,"payload_bytes":"?","headers":{"a":1},"Version":"1","x":2}`, nil, 428, "version-required",
				[]string{"/version", "/reason", "/payload_bytes", "/headers", "/Version", "/x"}},
			"both payloads": {"POST", delivery + "/repair", `{` + version + `,"payload":1,"payload_bytes":"AA=="}`, nil, 422, "invalid",
				[]string{"/payload_bytes"}},
			"a job's fields": {"POST", "/jobs", `{"kind":null,"filter":{"topics":"a","from_seq":0,"sinse":1},"rate_per_second":-1,` +
				`"max_events":1.5,"dry_run":"yes"}`, nil, 422, "invalid",
				[]string{"/kind", "/rate_per_second", "/max_events", "/filter/topics", "/filter/from_seq", "/filter/sinse", "/dry_run",
					"/reason"}},
			"a reason that is too long": {"POST", "/destinations/d/pause", `{"reason":"` + strings.Repeat("x", 2001) + `"}`, nil,
				422, "invalid", []string{"/reason"}},
			"no reason":             {"POST", "/destinations/d/pause", `{"reason":" "}`, nil, 422, "invalid", []string{"/reason"}},
			"a number that is none": {"POST", "/destinations/d/deliveries/x/retry", `{` + version + `}`, nil, 404, "not-found", nil},
		} {
			change := []func(*http.Request){}
			if c.with != nil {
				change = append(change, c.with)
			}
			var p shown
			b.answer(b.send(c.method, c.path, c.body, change...), c.method, c.path, c.body[:min(len(c.body), 200)], c.status, &p)
			var where []string
			for _, e := range p.Errors {
				where = append(where, e.Pointer+e.Parameter)
			}
			if p.Type != "urn:pillarbox:problem:"+c.kind || p.Status != c.status || p.Title != http.StatusText(c.status) {
				b.Errorf("%s: got %+v, want %s", name, p, c.kind)
			}
			if !slices.Equal(where, c.errors) {
				b.Errorf("%s: the errors are at %q, want %q: %+v", name, where, c.errors, p.Errors)
			}
		}
		if b.log.Len() > 0 {
			b.Errorf("the log of the process has %s", &b.log)
		}
		if e := b.event("evt-1"); len(e.History) > 0 || e.Deliveries[0].Status != "QUARANTINED" {
			b.Errorf("something was done: %+v", e)
		}
	})
}

func header(name, value string) func(*http.Request) {
	return func(r *http.Request) {
		if r.Header.Del(name); value != "" {
			r.Header.Set(name, value)
		}
	}
}

// What the document cannot describe: paths and methods that are not there.
func TestNoSuchRoute(t *testing.T) {
	b := &box{T: t, handler: openAPI(t)}
	for _, c := range []struct {
		method, path, allow string
		want                int
	}{
		{"GET", "", "", 404}, {"GET", "/", "", 404}, {"GET", "/evnts", "", 404}, {"POST", "/destinations/d", "", 404},
		{"DELETE", "/events", "GET, HEAD", 405}, {"GET", "/destinations/d/pause", "POST", 405},
		{"PUT", "/jobs", "GET, HEAD, POST", 405}, {"POST", "/openapi.json", "GET, HEAD", 405},
	} {
		w := b.send(c.method, c.path, "")
		allow := w.Header().Get("Allow")
		if w.Code != c.want || allow != c.allow || w.Header().Get("Content-Type") != "application/problem+json" {
			t.Errorf("%s %s: got %d, Allow %q, %s, want %d, %q", c.method, c.path, w.Code, allow, w.Body, c.want, c.allow)
		}
	}
	if w := b.send("HEAD", "/openapi.json", ""); w.Code != 200 {
		t.Errorf("HEAD: got %d", w.Code)
	}
}

// What the database says stays in the log.
func TestDatabaseAway(t *testing.T) {
	b := newBox(t, schema.SQLite, api.Config{})
	b.must(b.db.Close())
	for _, path := range []string{"/status", "/events", "/events/1", "/log", "/jobs", "/health", "/tasks", "/relays"} {
		var p shown
		b.call("GET", path, "", 500, &p)
		if strings.Contains(p.Detail, "sql") || p.Hint == "" {
			t.Errorf("%s: got %+v", path, p)
		}
	}
	if !strings.Contains(b.log.String(), "sql: database is closed") {
		t.Errorf("the log says %s", &b.log)
	}
}

// Nobody whom package access has not let in may anything, however the API is mounted.
func TestUnguarded(t *testing.T) {
	b := &box{T: t, handler: api.New(api.Config{})}
	if w := b.send("GET", "/openapi.json", ""); w.Code != 401 {
		t.Errorf("got %d, want 401", w.Code)
	}
}
