package dashboard

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"html"
	"net/http"
	"regexp"
	"strings"
	"testing"

	_ "github.com/jackc/pgx/v5/stdlib"

	"github.com/pillarbox-dev/pillarbox/dashboard/mask"
	"github.com/pillarbox-dev/pillarbox/internal/pgtest"
	"github.com/pillarbox-dev/pillarbox/ops"
	"github.com/pillarbox-dev/pillarbox/outbox"
	"github.com/pillarbox-dev/pillarbox/outbox/schema"
	"github.com/pillarbox-dev/pillarbox/relay"
)

// TestEmptyStates: a page that has nothing to show says what would make it show something.
func TestEmptyStates(t *testing.T) {
	s := newSite(t, nil)
	for path, want := range map[string]string{
		"/":                          "Name one under destinations",
		"/events":                    "The log is empty",
		"/events?destination=d":      "No relay has worked on the destination d yet",
		"/events?partition_key=k":    "Nothing fits this filter",
		"/events?from_seq=x&since=y": "is no number of the log",
		"/events?from_seq=xyz":       `value="xyz"`,
		"/quarantine":                "Nothing is quarantined",
		"/quarantine?topics=a":       "Nothing quarantined fits",
		"/jobs":                      "No job yet",
		"/jobs/new":                  "To which deliveries",
		"/destinations":              "No destination yet",
		"/relays":                    "No relay holds a lease",
		"/kafka":                     "Nobody tells this dashboard of producers",
		"/consumers":                 "Nobody tells this dashboard of consumers",
		"/log":                       "Nobody has done anything yet",
		"/log?seq=0":                 "is 1 or more",
		"/database":                  "outbox_event",
		"/tasks":                     "No task has run yet",
	} {
		status, body := s.get(path)
		if status != http.StatusOK || !strings.Contains(body, want) {
			t.Errorf("%s: got %d, and no %q", path, status, want)
		}
	}
	for path, want := range map[string]int{
		"/nowhere": 404, "/events/17": 404, "/events/no-such-id": 404, "/jobs/3": 404, "/jobs/x": 404, "/destinations/d": 404,
		"/events?after=nonsense": 400,
	} {
		status, body := s.get(path)
		if status != want || !strings.Contains(body, "<h1>") {
			t.Errorf("%s: got %d, want a page with %d", path, status, want)
		}
	}
}

// TestFull: the same pages when what the process knows is there.
func TestFull(t *testing.T) {
	s := newSite(t, func(c *Config) {
		c.Destinations, c.Owner = []string{"d", "later"}, "me"
		c.Producers = func() []Producer { return []Producer{{Destination: "d", Records: 7_000, Errors: 1}} }
		c.Latencies = func() []Latency {
			return []Latency{{Destination: "d", What: "settle", Count: 3, P50: ops.Seconds(1e6)}}
		}
		c.Consumers = func(context.Context) ([]Consumer, error) {
			return []Consumer{
				{Destination: "d", Group: "billing", LagKnown: true, Lag: 12_345, Problem: "half of it"},
				{Destination: "d", Inbox: "shipping", InboxKnown: true, Duplicates: ops.Count{N: 6_789, AtLeast: true}},
			}, nil
		}
	})
	seq := s.quarantined(event(`{"a":1}`))
	for path, wants := range map[string][]string{
		"/":               {"has a quarantined delivery", "is configured, and no relay has worked on it yet"},
		"/kafka":          {"7,000", "&lt; 0.1 %"},
		"/consumers":      {"12,345", "half of it", "6,789&#43;"},
		"/database":       {"≤ 1.0 ms"},
		"/destinations/d": {"no relay", "Endpoints"},
		"/relays":         {`Nobody works on <a href="/destinations/d">d</a>.`},
	} {
		_, body := s.get(path)
		for _, want := range wants {
			if !strings.Contains(body, want) {
				t.Errorf("%s has no %q", path, want)
			}
		}
	}
	if status, body := s.get(fmt.Sprintf("/find?event=%d", seq)); status != 200 || !strings.Contains(body, "number 1") {
		t.Errorf("looking for event %d leads to %d", seq, status)
	}
}

// TestShards: of a destination in several shards the pages show who works on which, and of this process the sum and the worst.
func TestShards(t *testing.T) {
	db, err := sql.Open("pgx", pgtest.Database(t))
	unit := func(shard int, state string) relay.UnitStatus {
		return relay.UnitStatus{
			Destination: "d", Shard: relay.Shard{Number: shard, Of: 4}, Leased: true, Alive: true, Holder: "me", InFlight: 1_000, Held: 20,
			Endpoints: []relay.EndpointStatus{{State: state, Code: "DIAL"}},
		}
	}
	s := newSiteOver(t, db, err, schema.Postgres, func(c *Config) {
		c.Destinations, c.Owner = []string{"d"}, "me"
		c.Units = func() []relay.UnitStatus {
			return []relay.UnitStatus{unit(0, "probing"), unit(1, "open"),
				{Destination: "d", Shard: relay.Shard{Number: 2, Of: 4}, Alive: true, Holder: "other"}}
		}
	})
	_, err = s.db.ExecContext(t.Context(), `insert into outbox_cursor (destination, shard, shards, position, lease_owner, lease_expires_at)
		select 'd', n, 4, 7000 + n, (array['me', 'me', 'other', null])[n + 1], now() + interval '1 hour' from generate_series(0, 3) as n`)
	s.must(err)
	for path, wants := range map[string][]string{
		"/": {"has no relay that works on shard 3 of 4", "me, other", "<td>open</td>"},
		"/destinations/d": {"no relay", "2,000", ">40<", "On shards of it work other as well", "7,003",
			`<th scope="row" data-label="Shard">3</th>`, "of the slowest shard"},
		"/relays": {`d</a> (shards 0, 1 of 4)`, `d</a> (shard 2 of 4)`, `Nobody works on <a href="/destinations/d">d</a> (shard 3 of 4).`,
			"shard 1 of 4</span>"},
	} {
		status, body := s.get(path)
		for _, want := range wants {
			if !strings.Contains(body, want) {
				t.Errorf("%s (%d) has no %q:\n%s", path, status, want, body)
			}
		}
	}
}

// TestNothingIsMarkup: what comes from producers, receivers and operators is text.
func TestNothingIsMarkup(t *testing.T) {
	s := newSite(t, nil)
	evil := `"></textarea><script>alert(1)</script>`
	e := event(`{"a":"<script>alert(2)</script></textarea><b>"}`)
	e.Key, e.Headers = evil, map[string]string{"x": evil}
	seq := s.quarantined(e)
	s.must(s.ops.Pause(t.Context(), "d", ops.Action{By: evil, Reason: evil}))
	for _, path := range []string{"/", "/events", "/quarantine", fmt.Sprint("/events/", seq), "/destinations/d", "/log",
		"/events?partition_key=" + `%22%3E%3Cscript%3Ealert(1)%3C/script%3E`} {
		_, body := s.get(path)
		for _, tag := range []string{"<script>", "</textarea><script", "</textarea><b", "<b>customer"} {
			if strings.Contains(body, tag) {
				t.Errorf("%s holds %q as markup", path, tag)
			}
		}
	}
}

// TestEveryLinkLeads follows every link from the first page on, on both databases: each leads to a page.
func TestEveryLinkLeads(t *testing.T) {
	postgres := func(t *testing.T) *site {
		db, err := sql.Open("pgx", pgtest.Database(t))
		return newSiteOver(t, db, err, schema.Postgres, nil)
	}
	for name, open := range map[string]func(*testing.T) *site{
		"postgres": postgres, "sqlite": func(t *testing.T) *site { return newSite(t, nil) },
	} {
		t.Run(name, func(t *testing.T) {
			s := open(t)
			for range 60 { // more than a page
				s.quarantined(event(`{"a":1}`))
			}
			by := ops.Action{By: "grace", Reason: "r"}
			s.must(s.ops.Pause(t.Context(), "d", by))
			_, err := s.ops.StartJob(t.Context(), ops.JobRequest{Kind: ops.JobRetry, Filter: ops.Filter{Destination: "d"}}, by)
			s.must(err)
			queue, known := []string{"/"}, map[string]bool{"/": true}
			for ; len(queue) > 0 && len(known) < 400; queue = queue[1:] {
				status, body := s.get(queue[0])
				if status != http.StatusOK {
					t.Errorf("%s: got %d", queue[0], status)
				}
				for _, link := range links.FindAllStringSubmatch(body, -1) {
					path := html.UnescapeString(link[1])
					if strings.HasPrefix(link[0], "href") && !known[path] {
						known[path] = true
						queue = append(queue, path)
					}
				}
			}
			if len(known) < 80 {
				t.Errorf("there are only %d pages", len(known))
			}
		})
	}
}

var links = regexp.MustCompile(`(?:href|action|src|data-stream|formaction)="(/[^"]*)"`)

// TestBase: mounted below a path, every link stays below it, and leads somewhere.
func TestBase(t *testing.T) {
	s := newSite(t, func(c *Config) { c.Base = "/outbox/" })
	seq := s.quarantined(event(`{}`))
	for _, path := range []string{"/", fmt.Sprint("/events/", seq), "/quarantine", "/jobs/new", "/destinations/d"} {
		path = "/outbox" + path
		status, body := s.get(path)
		found := links.FindAllStringSubmatch(body, -1)
		if status != 200 || len(found) < 10 {
			t.Fatalf("%s: got %d, and %d links", path, status, len(found))
		}
		for _, link := range found {
			if !strings.HasPrefix(link[1], "/outbox/") {
				t.Errorf("%s links to %s", path, link[1])
			}
		}
	}
	if status, _ := s.post(fmt.Sprintf("/outbox/events/%d/d/retry", seq), s.form(seq)); status != 200 || s.status(seq) != "PENDING" {
		t.Errorf("a retry below a path: got %d, and the delivery is %s", status, s.status(seq))
	}
}

// TestClosedByDefault: without a credential only this machine is let in, and no page of another site acts through its browser.
func TestClosedByDefault(t *testing.T) {
	s := newSite(t, nil)
	seq := s.quarantined(event(`{}`))
	if status, body := s.get("/", "Host", "evil.example"); status != http.StatusForbidden || strings.Contains(body, "Overview") {
		t.Errorf("a foreign name in the Host header: got %d", status)
	}
	path := fmt.Sprintf("/events/%d/d/retry", seq)
	for _, headers := range [][]string{{"Sec-Fetch-Site", "cross-site"}, {"Origin", "http://evil.example"}} {
		if status, _ := s.post(path, s.form(seq), headers...); status != http.StatusForbidden {
			t.Errorf("a form of another site with %v: got %d", headers, status)
		}
	}
	if got := s.status(seq); got != "QUARANTINED" {
		t.Errorf("it is %s", got)
	}
}

// TestMask: what is masked is in no page, and a repair never stores the mask.
func TestMask(t *testing.T) {
	s := newSite(t, func(c *Config) { c.Mask, c.MaskOperators = mask.New([]string{"iban", "x-card"}), true })
	e := event(`{"iban":"DE02","amount":"one"}`)
	e.Headers = map[string]string{"X-Card": "4111"}
	seq := s.quarantined(e)
	path := fmt.Sprint("/events/", seq)
	_, body := s.get(path)
	if strings.Contains(body, "DE02") || strings.Contains(body, "4111") || !strings.Contains(body, "(masked)") {
		t.Errorf("the page shows what is masked:\n%s", body)
	}
	headers := "{\n  \"X-Card\": \"(masked)\"\n}"
	form := s.form(seq, "payload", `{"iban":"(masked)","amount":1}`, "headers", headers, "reason", "r")
	if status, body := s.post(path+"/d/repair", form); status != http.StatusUnprocessableEntity || !strings.Contains(body, "/iban") {
		t.Errorf("a repair that would store the mask: got %d", status)
	}
	form.Set("payload", `{"iban":"DE03","amount":1}`)
	if status, _ := s.post(path+"/d/repair", form); status != 200 || s.status(seq) != "PENDING" {
		t.Errorf("a repair with every value: got %d, and it is %s", status, s.status(seq))
	}
	detail, err := s.ops.Show(t.Context(), ops.EventRef{Seq: seq})
	s.must(err)
	if string(detail.Payload) != `{"iban":"DE03","amount":1}` || !strings.Contains(string(detail.Headers), "4111") {
		t.Errorf("the event is %s with %s", detail.Payload, detail.Headers)
	}
	for _, page := range []string{path, "/log"} {
		if _, body := s.get(page); strings.Contains(body, "DE02") || strings.Contains(body, "DE03") {
			t.Errorf("the history of %s shows what is masked", page)
		}
	}
}

// TestForms: what cannot be done is told with the right status, and nothing is done.
func TestForms(t *testing.T) {
	s := newSite(t, nil)
	seq := s.quarantined(event(`{"a":1}`))
	path := fmt.Sprint("/events/", seq, "/d/")
	const job, payload, headers = "/jobs", "{\n  \"a\": 1\n}", "{\n  \"tenantId\": \"n\"\n}"
	for name, c := range map[string]struct {
		path   string
		form   []string
		status int
		want   string
	}{
		"no version":             {path + "retry", []string{"version", ""}, 422, ""},
		"an old version":         {path + "retry", []string{"version", "0.QUARANTINED.9.0"}, 409, "was quicker"},
		"an unknown action":      {path + "burn", nil, 404, ""},
		"an unknown destination": {fmt.Sprint("/events/", seq, "/e/retry"), nil, 404, ""},
		"nothing changed":        {path + "repair", []string{"payload", payload, "headers", headers}, 422, "are what they were"},
		"broken headers":         {path + "repair", []string{"payload", payload, "headers", `{"a": 1}`}, 422, "no flat object"},
		"many, none picked":      {"/quarantine", []string{"do", "retry"}, 422, "pick at least one"},
		"many, nothing chosen":   {"/quarantine", []string{"pick", "x"}, 422, "choose"},
		"many, no reason":        {"/quarantine", []string{"do", "discard", "pick", "x"}, 422, "say why"},
		"many, one that changed": {"/quarantine", []string{"do", "retry", "pick", fmt.Sprintf("d=d&s=%d&v=old", seq)}, 422, "0 of 1"},
		"a job of nothing":       {job, []string{"kind", "retry", "destination", "none", "reason", "r"}, 422, "No relay has worked"},
		"a job without a reason": {job, []string{"kind", "retry", "destination", "d"}, 422, "reason"},
		"a pause without one":    {"/destinations/d/pause", nil, 422, "reason is missing"},
		"a resume of what runs":  {"/destinations/d/resume", nil, 409, "It is not paused"},
	} {
		t.Run(name, func(t *testing.T) {
			s := *s
			s.T = t
			status, body := s.post(c.path, s.form(seq, c.form...))
			if status != c.status || !strings.Contains(body, c.want) {
				t.Errorf("got %d, want %d with %q:\n%s", status, c.status, c.want, body)
			}
			if got := s.status(seq); got != "QUARANTINED" {
				t.Errorf("it is %s", got)
			}
		})
	}
	large := s.form(seq, "payload", strings.Repeat("x", maxForm))
	if status, _ := s.post(path+"retry", large); status != http.StatusRequestEntityTooLarge {
		t.Errorf("a form that is too large: got %d", status)
	}
}

// TestDatabaseGone: the page says so, and does not hang or show half of it.
func TestDatabaseGone(t *testing.T) {
	s := newSite(t, func(c *Config) { c.Logger = nil })
	s.must(s.db.Close())
	status, body := s.get("/")
	if status != http.StatusInternalServerError || !strings.Contains(body, "could not be asked") {
		t.Errorf("got %d:\n%s", status, body)
	}
}

func TestExplain(t *testing.T) {
	d := newSite(t, func(c *Config) { c.Logger = nil }).board
	for _, c := range []struct {
		err  error
		want int
	}{
		{fmt.Errorf("x: %w", ops.ErrNotFound), 404}, {ops.ErrBadPage, 400}, {context.DeadlineExceeded, 503}, {errors.New("x"), 500},
		{&statusError{status: 418}, 418},
	} {
		if got := d.explain(c.err).status; got != c.want {
			t.Errorf("%v: got %d, want %d", c.err, got, c.want)
		}
	}
}

// TestMaskOfBytes: what a repair has kept of a payload of bytes is in no page either.
func TestMaskOfBytes(t *testing.T) {
	s := newSite(t, func(c *Config) { c.Mask, c.MaskOperators = mask.New([]string{"iban"}), true })
	seq := s.quarantined(outbox.Event{Topic: "t", Type: "Placed", PayloadBytes: []byte("DE02")})
	detail, err := s.ops.Show(t.Context(), ops.EventRef{Seq: seq})
	s.must(err)
	_, err = s.ops.Repair(t.Context(), ops.Target{Destination: "d", Seq: seq, Version: detail.Deliveries[0].Version},
		ops.Repair{PayloadBytes: []byte("DE03")}, ops.Action{By: "ann", Reason: "a wrong number"})
	s.must(err)
	for _, path := range []string{at("/events", seq), "/log"} {
		_, page := s.get(path)
		if strings.Contains(page, "REUwMg==") || strings.Contains(page, "REUwMw==") {
			t.Errorf("%s shows the bytes", path)
		}
		if !strings.Contains(page, "a wrong number") || !strings.Contains(page, mask.Text) {
			t.Errorf("%s does not show the repair with its bytes masked", path)
		}
	}
}

// TestMaskOfTasks: what a reconciliation has found with the user's own queries is masked by its columns.
func TestMaskOfTasks(t *testing.T) {
	s := newSite(t, func(c *Config) { c.Mask, c.MaskOperators = mask.New([]string{"iban"}), true })
	s.must(s.ops.ReconcileOn(t.Context(), ops.ReconcileConfig{
		Queries: []ops.ReconcileQuery{{Name: "unpaid", SQL: "select 'DE02' as iban, 'case 7' as id"}},
	}))
	_, page := s.get("/tasks")
	if strings.Contains(page, "DE02") || !strings.Contains(page, "case 7") {
		t.Errorf("the page shows what is masked, or not what was found:\n%s", page)
	}
}
