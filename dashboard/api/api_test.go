package api_test

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/pillarbox-dev/pillarbox/dashboard/api"
	"github.com/pillarbox-dev/pillarbox/dashboard/mask"
	"github.com/pillarbox-dev/pillarbox/ops"
	"github.com/pillarbox-dev/pillarbox/outbox/schema"
	"github.com/pillarbox-dev/pillarbox/relay"
)

// A poison event is found, repaired and set going again, and the operators' log tells it. Every operation of the document is
// called on the way.
func TestEveryOperation(t *testing.T) {
	config := api.Config{
		Destinations: []string{"new", "d"}, Owner: "relay-1",
		Units: func() []relay.UnitStatus {
			return []relay.UnitStatus{{
				Destination: "d", Leased: true, Alive: true, Position: 7, InFlight: 1, Err: errors.New("the store is away"),
				Pause: relay.Pause{Reason: "audit"}, Endpoints: []relay.EndpointStatus{{Endpoint: "acme", State: "open", Code: "DIAL"}},
			}}
		},
	}
	onBoth(t, config, func(b *box) {
		b.empty()
		b.destination()
		b.repairsPoison()
		b.actsOnOthers()
		b.runsAJob()
		b.steersTheDestination()
		b.called["GET /openapi.json"] = true // document has called it
		for path, item := range b.document().Paths.Map() {
			for method := range item.Operations() {
				if !b.called[method+" "+path] {
					b.Errorf("%s %s is never called", method, path)
				}
			}
		}
	})
}

// empty looks at an outbox that nobody has used yet.
func (b *box) empty() {
	b.Helper()
	for _, path := range []string{"/status", "/events", "/log", "/jobs", "/relays", "/health", "/tasks"} {
		b.call("GET", path, "", 200, nil)
		if w := b.send("GET", path, ""); strings.Contains(w.Body.String(), "null") {
			b.Errorf("%s of an empty outbox holds a null: %s", path, w.Body)
		}
	}
}

func (b *box) repairsPoison() {
	b.Helper()
	seq := b.poison("evt-1", `{ "customer": 1.0, "<&>": 1e2 }`, `{"tenant":"a"}`)
	if got := b.send("GET", "/events/evt-1", "").Body.String(); !strings.Contains(got, `{"customer":1.0,"<&>":1e2}`) {
		b.Errorf("the payload is shown as %s", got)
	}
	var list ops.DeliveryPage
	b.call("GET", "/events?status=QUARANTINED&status=FAILED&destination=d&topic=ord*&last_error_code=HTTP_422&limit=5"+
		"&since=2020-01-01T00:00:00Z&from_seq=1&event_type=OrderPlaced&partition_key=k&order=oldest", "", 200, &list)
	if len(list.Deliveries) != 1 || list.Deliveries[0].Seq != seq {
		b.Fatalf("the list has %+v, want event %d", list.Deliveries, seq)
	}
	b.call("GET", "/events?topic=other", "", 200, &list)
	if len(list.Deliveries) != 0 {
		b.Errorf("another topic has %+v", list.Deliveries)
	}
	b.call("POST", fmt.Sprintf("/destinations/d/deliveries/%d/repair", b.poison("nothing", `{}`, `{}`)),
		`{"version":"`+b.version("nothing")+`","payload":null}`, 200, nil)
	if got := b.send("GET", "/events/nothing", "").Body.String(); !strings.Contains(got, `"payload":null`) {
		b.Errorf("the payload null is shown as %s", got)
	}
	version := b.version("evt-1")
	path := fmt.Sprintf("/destinations/d/deliveries/%d/repair", seq)
	body := `{"version":"` + version + `","reason":"typo","payload":{ "customer" :  2.50 },"headers":{"tenant":"b"}}`
	var is ops.Delivery
	b.call("POST", path, body, 200, &is)
	if is.Status != relay.StatusPending || is.Attempts != 0 {
		b.Errorf("the repaired delivery is %+v", is)
	}
	e := b.event("evt-1")
	if got, want := string(e.Payload), `{ "customer" :  2.50 }`; b.stored() != want {
		b.Errorf("the payload is stored as %s, want %s, byte for byte; shown as %s", b.stored(), want, got)
	}
	if got := string(e.Headers); !strings.Contains(got, `"b"`) {
		b.Errorf("the headers are %s", got)
	}
	var p shown
	b.call("POST", path, body, 409, &p)
	var now ops.Delivery
	b.must(json.Unmarshal(p.Current, &now))
	if p.Type != "urn:pillarbox:problem:conflict" || now.Version != is.Version {
		b.Errorf("the conflict is %+v, want the version %s in it", p, is.Version)
	}
	var log ops.LogPage
	b.call("GET", fmt.Sprintf("/log?seq=%d&operator=alarm&action=repair&destination=d&limit=10", seq), "", 200, &log)
	if len(log.Entries) != 1 || log.Entries[0].Reason != "typo" || log.Entries[0].Operator != "alarm" {
		b.Errorf("the log has %+v", log.Entries)
	}
}

// stored is the payload of evt-1 in the database.
func (b *box) stored() (payload string) {
	b.Helper()
	const query = `select cast(payload as text) from outbox_event where event_id = 'evt-1'`
	b.must(b.db.QueryRowContext(b.Context(), query).Scan(&payload))
	return payload
}

func (b *box) actsOnOthers() {
	b.Helper()
	for i, action := range []string{"retry", "discard"} {
		id := fmt.Sprintf("12%d", i) // digits alone: a number, unless told otherwise
		seq := b.poison(id, `{}`, `{}`)
		b.call("GET", "/events/"+id, "", 404, nil)
		e := b.event(id + "?by=id")
		if e.Seq != seq || b.event(fmt.Sprintf("%d?by=seq", seq)).EventID != id || b.event(fmt.Sprint(seq)).EventID != id {
			b.Errorf("event %s is not found by its number %d", id, seq)
		}
		path := fmt.Sprintf("/destinations/d/deliveries/%d/%s", seq, action)
		version := e.Deliveries[0].Version
		var is ops.Delivery
		b.call("POST", path, `{"version":"`+version+`"}`, 200, &is)
		want := map[string]relay.Status{"retry": relay.StatusPending, "discard": relay.StatusDiscarded}[action]
		if is.Status != want {
			b.Errorf("after the %s it is %s, want %s", action, is.Status, want)
		}
		var p shown
		b.call("POST", path, `{"version":"`+is.Version+`"}`, 422, &p) // it makes no sense twice
		if p.Type != "urn:pillarbox:problem:refused" || p.Detail == "" {
			b.Errorf("a second %s: %+v", action, p)
		}
		b.call("POST", fmt.Sprintf("/destinations/other/deliveries/%d/%s", seq, action), `{"version":"`+version+`"}`, 404, nil)
	}
}

func (b *box) runsAJob() {
	b.Helper()
	for i := range 3 {
		b.poison(fmt.Sprintf("job-%d", i), `{}`, `{}`)
	}
	const filter = `"filter":{"destination":"d","statuses":["QUARANTINED"],"topics":["orders"],"since":"2020-01-01T00:00:00Z"}`
	var tried struct {
		DryRun   bool `json:"dry_run"`
		Estimate ops.Count
	}
	b.call("POST", "/jobs", `{"kind":"retry",`+filter+`,"dry_run":true}`, 200, &tried)
	if !tried.DryRun || tried.Estimate.N != 3 {
		b.Errorf("the dry run says %+v, want 3", tried)
	}
	var list ops.JobPage
	b.call("GET", "/jobs", "", 200, &list)
	if len(list.Jobs) != 0 {
		b.Errorf("the dry run has left %+v", list.Jobs)
	}
	start := `{"kind":"retry",` + filter + `,"rate_per_second":100,"max_events":2,"reason":"mended"}`
	var job ops.Job
	b.call("POST", "/jobs", start, 201, &job)
	at := b.send("POST", "/jobs", start).Header().Get("Location")
	if want := fmt.Sprintf("%s/jobs/%d", api.Prefix, job.ID+1); at != want {
		b.Errorf("the second job is at %q, want %q", at, want)
	}
	path := fmt.Sprintf("/jobs/%d", job.ID)
	for _, action := range []string{"pause", "resume", "cancel"} {
		seen := job.Version
		b.call("POST", path+"/"+action, fmt.Sprintf(`{"version":%d,"reason":"as planned"}`, seen), 200, &job)
		var p shown
		b.call("POST", path+"/"+action, fmt.Sprintf(`{"version":%d}`, seen), 409, &p)
		var now ops.Job
		b.must(json.Unmarshal(p.Current, &now))
		if now.Version != job.Version {
			b.Errorf("the conflict shows %+v, want version %d", now, job.Version)
		}
	}
	b.call("GET", path, "", 200, &job)
	if job.State != ops.JobCancelled || job.CreatedBy != "alarm" {
		b.Errorf("the job is %+v", job)
	}
	b.call("GET", "/jobs?limit=1", "", 200, &list)
	if len(list.Jobs) != 1 || list.Next == "" {
		b.Fatalf("the first page of jobs is %+v", list)
	}
	b.call("GET", "/jobs?limit=1&after="+list.Next, "", 200, &list)
	if len(list.Jobs) != 1 || list.Jobs[0].ID != job.ID {
		b.Errorf("the second page of jobs is %+v", list)
	}
	b.call("GET", "/jobs/99", "", 404, nil)
}

func (b *box) steersTheDestination() {
	b.Helper()
	b.call("POST", "/destinations/d/pause", `{"reason":"audit"}`, 200, nil)
	var now struct {
		Destinations []struct {
			PausedBy string `json:"paused_by"`
		}
		NotStarted []string `json:"not_started"`
	}
	b.call("GET", "/status", "", 200, &now)
	if len(now.Destinations) != 1 || now.Destinations[0].PausedBy != "alarm" || !slices.Equal(now.NotStarted, []string{"new"}) {
		b.Errorf("the status is %+v", now)
	}
	b.call("POST", "/destinations/d/resume", `{}`, 200, nil)
	b.call("POST", "/destinations/d/resume", `{"reason":"again"}`, 409, nil)
	b.call("POST", "/destinations/other/pause", `{"reason":"audit"}`, 404, nil)
	b.call("GET", "/destinations/d/recent", "", 200, nil)
	var who struct {
		Owner string
		Units []struct {
			Error     string
			Paused    bool
			Endpoints []struct{ Code string }
		}
		Leases []struct{ Destination string }
	}
	b.call("GET", "/relays", "", 200, &who)
	if who.Owner != "relay-1" || len(who.Units) != 1 || who.Units[0].Error != "the store is away" || !who.Units[0].Paused ||
		who.Units[0].Endpoints[0].Code != "DIAL" || len(who.Leases) != 1 {
		b.Errorf("the relays are %+v", who)
	}
	b.call("GET", "/health", "", 200, nil)
	b.call("GET", "/tasks", "", 200, nil)
}

// A destination in several shards has a lease and a unit for each.
func TestShards(t *testing.T) {
	b := newBox(t, schema.Postgres, api.Config{Units: func() []relay.UnitStatus {
		return []relay.UnitStatus{{Destination: "d", Shard: relay.Shard{Number: 1, Of: 2}, Leased: true}}
	}})
	b.exec(`insert into outbox_cursor (destination, shard, shards, position, lease_owner, lease_expires_at)
		select 'd', n, 2, 0, (array[null, 'relay-1'])[n + 1], now() + interval '1 hour' from generate_series(0, 1) as n`)
	var who struct {
		Units  []struct{ Shard int }
		Leases []struct {
			Destination, Owner string
			Shard              int
		}
	}
	b.call("GET", "/relays", "", 200, &who)
	if len(who.Units) != 1 || who.Units[0].Shard != 1 || len(who.Leases) != 2 || who.Leases[0].Owner != "" ||
		who.Leases[1].Shard != 1 || who.Leases[1].Owner != "relay-1" {
		t.Errorf("the relays are %+v", who)
	}
	var now ops.Status
	b.call("GET", "/status", "", 200, &now)
	if len(now.Destinations) != 1 || now.Destinations[0].LeaseOwner != "relay-1" || len(now.Destinations[0].Shards) != 2 {
		t.Errorf("the status is %+v", now)
	}
}

// Every route is in the document, and every operation of it is a route.
func TestRoutesAndDocumentAgree(t *testing.T) {
	b := &box{T: t}
	b.handler = openAPI(t)
	document := b.document()
	var described []string
	for path, item := range document.Paths.Map() {
		for method := range item.Operations() {
			described = append(described, method+" "+path)
		}
	}
	slices.Sort(described)
	if routes := api.Routes(); !slices.Equal(routes, described) {
		t.Errorf("the routes are\n%s\nthe document has\n%s", strings.Join(routes, "\n"), strings.Join(described, "\n"))
	}
}

// Of two who act on what they both saw, one wins and the other is told.
func TestTwoOperators(t *testing.T) {
	onBoth(t, api.Config{}, func(b *box) {
		b.destination()
		for round := range 10 {
			id := fmt.Sprintf("evt-%d", round)
			seq := b.poison(id, `{}`, `{}`)
			body := `{"version":"` + b.version(id) + `"}`
			codes := make([]int, 2)
			var both sync.WaitGroup
			for i, action := range []string{"retry", "discard"} {
				both.Go(func() {
					codes[i] = b.send("POST", fmt.Sprintf("/destinations/d/deliveries/%d/%s", seq, action), body).Code
				})
			}
			both.Wait()
			if slices.Sort(codes); !slices.Equal(codes, []int{200, 409}) {
				b.Fatalf("round %d: got %v, want one 200 and one 409; log: %s", round, codes, &b.log)
			}
		}
	})
}

func TestMask(t *testing.T) {
	onBoth(t, masked, func(b *box) {
		b.destination()
		seq := b.poison("evt-1", `{"iban":"DE02","n":1}`, `{"Token":"t0p"}`)
		hides := func(text string) bool { return !strings.Contains(text, "DE02") && !strings.Contains(text, "t0p") }
		if got := b.send("GET", "/events/evt-1", "", as(viewer)).Body.String(); !hides(got) || !strings.Contains(got, `"masked":true`) {
			b.Errorf("a viewer sees %s", got)
		}
		if got := b.send("GET", "/events/evt-1", "").Body.String(); hides(got) || !strings.Contains(got, `"masked":false`) {
			b.Errorf("an operator sees %s", got)
		}
		b.call("POST", fmt.Sprintf("/destinations/d/deliveries/%d/repair", seq),
			`{"version":"`+b.version("evt-1")+`","payload_bytes":"REUwMg=="}`, 200, nil) // DE02
		for _, path := range []string{"/events/evt-1", "/log"} {
			got := b.send("GET", path, "", as(viewer)).Body.String()
			if !hides(got) || strings.Contains(got, "REUwMg") {
				b.Errorf("after the repair a viewer sees in %s: %s", path, got)
			}
			b.call("GET", path, "", 200, nil, as(viewer))
		}
	})
	everybody := masked
	everybody.MaskOperators = true
	onBoth(t, everybody, func(b *box) {
		b.destination()
		seq := b.poison("evt-1", `{"iban":"DE02","n":1}`, `{"Token":"t0p"}`)
		if got := b.send("GET", "/events/evt-1", "").Body.String(); strings.Contains(got, "DE02") || strings.Contains(got, "t0p") {
			b.Errorf("an operator sees %s", got)
		}
		var p shown
		b.call("POST", fmt.Sprintf("/destinations/d/deliveries/%d/repair", seq), `{"version":"`+b.version("evt-1")+
			`","payload":{"iban":"(masked)","n":2},"headers":{"Token":"(masked)"}}`, 422, &p)
		if len(p.Errors) != 2 || p.Errors[0].Pointer != "/payload" || p.Errors[1].Pointer != "/headers" {
			b.Errorf("a repair with the mask in it: %+v", p)
		}
		for _, bytes := range []string{mask.Text, `{"iban":"(masked)"}`} { // as bytes are shown
			b.call("POST", fmt.Sprintf("/destinations/d/deliveries/%d/repair", seq), fmt.Sprintf(`{"version":%q,"payload_bytes":%q}`,
				b.version("evt-1"), base64.StdEncoding.EncodeToString([]byte(bytes))), 422, &p)
			if len(p.Errors) != 1 || p.Errors[0].Pointer != "/payload_bytes" {
				b.Errorf("a repair with the mask in its bytes: %+v", p)
			}
		}
	})
}

// openAPI is an API that has no database, for those who only read the document.
func openAPI(t *testing.T) http.Handler {
	t.Helper()
	handler := api.New(api.Config{Ops: &ops.Ops{}})
	return asOperator(t, handler)
}
