package dashboard

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pillarbox-dev/pillarbox/dashboard/access"
	"github.com/pillarbox-dev/pillarbox/ops"
	"github.com/pillarbox-dev/pillarbox/relay"
)

func TestFormats(t *testing.T) {
	now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	for _, c := range []struct{ got, want string }{
		{number(0), "0"}, {number(-1234), "-1,234"}, {number(10_000_000), "10,000,000"},
		{count(ops.Count{N: 10_000, AtLeast: true}), "10,000+"}, {count(ops.Count{N: 9_999_999, Estimated: true}), "~9,999,999"},
		{rate(0), "0.0"}, {rate(9.96), "10.0"}, {rate(12_345.6), "12,346"},
		{percent(0), "0 %"}, {percent(0.0004), "< 0.1 %"}, {percent(0.088), "8.8 %"}, {percent(1), "100 %"},
		{bytesText(0), "0 B"}, {bytesText(999), "999 B"}, {bytesText(1500), "1.5 kB"}, {bytesText(164_000), "164 kB"},
		{bytesText(5e12), "5.0 TB"},
		{latency(0), "–"}, {latency(1500 * time.Microsecond), "1.5 ms"}, {latency(71 * time.Millisecond), "71 ms"},
		{latency(1234 * time.Millisecond), "1.23 s"}, {latency(time.Hour), "1 h 00 min"},
		{age(0), "< 1 s"}, {age(61 * time.Second), "1 min 01 s"}, {age(49 * time.Hour), "2 d 1 h"},
		{ago(now, now), "just now"}, {ago(now.Add(-90*time.Second), now), "1 min ago"}, {ago(now.Add(time.Hour), now), "in 1 h"},
		{ago(now.Add(-72*time.Hour), now), "3 days ago"},
		{short(0), "0"}, {short(0.5), "0.5"}, {short(20_000), "20 k"}, {short(10_000_000), "10 M"},
		{word(relay.StatusQuarantined), "quarantined"}, {word("no relay"), "no-relay"}, {word(`"><x`), "---x"},
	} {
		if c.got != c.want {
			t.Errorf("got %q, want %q", c.got, c.want)
		}
	}
	const want = `<time datetime="2026-11-30T12:00:00Z" title="2026-11-30 12:00:00.000 UTC">just now</time>`
	if got := string(timeElement(now, now)); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// TestFilterRoundTrip: the filter that a page's own links carry is the filter that it was asked for.
func TestFilterRoundTrip(t *testing.T) {
	f := ops.Filter{
		Destination: "d", Statuses: []relay.Status{relay.StatusFailed, relay.StatusQuarantined},
		Topics: relay.Topics{"a.*", "b"}, Key: "k 1",
		AggregateType: "order", AggregateID: "1", EventType: "T", ErrorCode: "HTTP_422", Endpoint: "acme",
		Since: time.Date(2026, 11, 29, 8, 15, 0, 0, time.UTC), Until: time.Date(2026, 11, 30, 0, 0, 0, 0, time.UTC),
		FromSeq: 3, ToSeq: 70_000,
	}
	again, err := url.ParseQuery(filterValues(f).Encode())
	if err != nil {
		t.Fatal(err)
	}
	got, problems := parseFilter(again)
	if len(problems) > 0 || !reflect.DeepEqual(got, f) {
		t.Errorf("got %+v, %q, want %+v", got, problems, f)
	}
	v := reflect.ValueOf(f)
	for i := range v.NumField() {
		if v.Field(i).IsZero() {
			t.Errorf("the test leaves %s out", v.Type().Field(i).Name)
		}
	}
}

func TestFilterTellsAllProblems(t *testing.T) {
	_, problems := parseFilter(url.Values{
		"statuses": {"FAILED", "LOST"}, "since": {"yesterday"}, "until": {"2026-13-01T00:00"}, "from_seq": {"0"}, "to_seq": {"many"},
	})
	if len(problems) != 5 {
		t.Errorf("got %d problems, want 5: %q", len(problems), problems)
	}
	good := url.Values{"since": {"2026-11-29T08:15:30Z"}, "until": {" 2026-11-29T08:15:30 "}}
	if _, problems := parseFilter(good); len(problems) > 0 {
		t.Errorf("got %q of good times", problems)
	}
}

// TestChanged: what a form has not touched stays as it is, whatever browsers do to line ends.
func TestChanged(t *testing.T) {
	compact := ops.EventDetail{Payload: json.RawMessage(`{"a":1.0,"b":[1,2]}`), Headers: json.RawMessage(`{"x":"1"}`)}
	spaced := ops.EventDetail{Payload: json.RawMessage("{ \"a\": 1 }"), Headers: json.RawMessage(`{}`)}
	dos := func(text string) string { return strings.ReplaceAll(text, "\n", "\r\n") }
	was := formOf(compact, nil)
	for name, c := range map[string]struct {
		detail           ops.EventDetail
		payload, headers string
		want             ops.Repair
		problem          string
	}{
		"nothing": {compact, dos(was.Payload), dos(was.Headers), ops.Repair{}, "are what they were"},
		"the payload": {compact, dos(strings.Replace(was.Payload, "1.0", "2.00", 1)), dos(was.Headers),
			ops.Repair{Payload: json.RawMessage(`{"a":2.00,"b":[1,2]}`)}, ""},
		"the headers":     {compact, was.Payload, `{"x": "2", "y": ""}`, ops.Repair{Headers: map[string]string{"x": "2", "y": ""}}, ""},
		"no header":       {compact, was.Payload, `{}`, ops.Repair{Headers: map[string]string{}}, ""},
		"in its spacing":  {spaced, "{\n  \"a\": 2\n}", "{}", ops.Repair{Payload: json.RawMessage("{\n  \"a\": 2\n}")}, ""},
		"no JSON":         {compact, "{\n  \"a\": 2,\n}", was.Headers, ops.Repair{}, "line 3, column 1"},
		"headers null":    {compact, was.Payload, "null", ops.Repair{}, "no flat object"},
		"headers no text": {compact, was.Payload, "", ops.Repair{}, "not JSON"},
	} {
		got, err := changed(c.detail, nil, c.payload, c.headers)
		switch {
		case c.problem != "":
			if err == nil || !strings.Contains(err.Error(), c.problem) {
				t.Errorf("%s: got %v, want %q", name, err, c.problem)
			}
		case err != nil || !reflect.DeepEqual(got, c.want):
			t.Errorf("%s: got %+v, %v, want %+v", name, got, err, c.want)
		}
	}
}

// TestRememberedAsksOnce: many who ask at the same time cost the database one question, and an answer is good for a while.
func TestRememberedAsksOnce(t *testing.T) {
	var asked atomic.Int64
	gate := make(chan struct{})
	m := remember(time.Hour, func(ctx context.Context) (int, error) {
		<-gate
		return int(asked.Add(1)), ctx.Err()
	})
	gone, leave := context.WithCancel(t.Context())
	leave() // who asks and leaves does not spoil the answer of the others
	var asking sync.WaitGroup
	for range 10 {
		asking.Go(func() {
			if got, err := m.get(gone); got != 1 || err != nil {
				t.Errorf("got %d, %v, want 1", got, err)
			}
		})
	}
	close(gate)
	asking.Wait()
	m.forget()
	if got, _ := m.get(t.Context()); got != 2 {
		t.Errorf("got %d after it was forgotten, want 2", got)
	}
	if _, err := remember[int](time.Hour, nil).get(t.Context()); !errors.Is(err, errNobodyKnows) {
		t.Errorf("got %v where there is nothing to ask", err)
	}
}

func TestSamplesAreBounded(t *testing.T) {
	s := newSamples(3)
	at := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	status := func(n int64) ops.Status {
		return ops.Status{Destinations: []ops.DestinationStatus{
			{Destination: "b", Pending: ops.Count{N: n}, Failed: ops.Count{N: 1}}, {Destination: "a", RatePerSecond: float64(n)},
		}}
	}
	s.add(at, status(0))
	s.add(at.Add(time.Second), status(100)) // too soon after the last
	for n := range 5 {
		s.add(at.Add(time.Duration(n+1)*sampleEvery), status(int64(n+1)))
	}
	lines := s.lines(func(v sampled) float64 { return v.pending }, "")
	if len(lines) != 2 || lines[0].Name != "a" || lines[1].Name != "b" || len(lines[1].Points) != 3 {
		t.Fatalf("got %+v, want three points of a and of b", lines)
	}
	if got := lines[1].Points[2]; got.Value != 6 || !got.At.Equal(at.Add(5*sampleEvery)) {
		t.Errorf("got %+v as the last point", got)
	}
	if got := s.lines(func(v sampled) float64 { return v.rate }, "a"); len(got) != 1 || got[0].Points[0].Value != 3 {
		t.Errorf("got %+v of a alone", got)
	}
}

// TestLive: a stream sends the parts of its page, then only what has changed, for longer than the server gives to other answers;
// there are no more streams than may be; and all end when Run does.
func TestLive(t *testing.T) {
	s := newSite(t, nil)
	s.server.Close()
	s.server = httptest.NewUnstartedServer(s.board)
	s.server.Config.ReadTimeout, s.server.Config.WriteTimeout = liveEvery/2, liveEvery/2
	s.server.Start()
	t.Cleanup(s.server.Close)
	stop := s.run()
	var bodies []*bufio.Reader
	address := s.server.URL + "/live?page=" + url.QueryEscape("/events?statuses=FAILED")
	for n := range maxStreams + 1 {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address, nil)
		s.must(err)
		answer, err := http.DefaultClient.Do(request)
		s.must(err)
		defer answer.Body.Close()
		if n == maxStreams {
			if answer.StatusCode != http.StatusServiceUnavailable || answer.Header.Get("Retry-After") == "" {
				t.Errorf("one stream too many: got %d", answer.StatusCode)
			}
			break
		}
		if answer.StatusCode != http.StatusOK || answer.Header.Get("Content-Type") != "text/event-stream" {
			t.Fatalf("stream %d: got %d, %s", n, answer.StatusCode, answer.Header.Get("Content-Type"))
		}
		bodies = append(bodies, bufio.NewReader(answer.Body))
	}
	first := message(bodies[0])
	if !strings.Contains(first, "Nothing fits this filter") || !strings.HasPrefix(first, "event: parts\n") {
		t.Errorf("the first message is %q", first)
	}
	if second := message(bodies[0]); second != "event: parts\ndata: {}\n" {
		t.Errorf("the second message is %q, want nothing new", second)
	}
	stop()
	for _, body := range bodies { // else this does not end
		for message(body) != "" {
		}
	}
	long := "/" + strings.Repeat("x", maxLivePage)
	for _, page := range []string{"", "http://evil.example/", "//evil.example/", "/live?page=/", long} {
		if status, _ := s.get("/live?page=" + url.QueryEscape(page)); status != http.StatusBadRequest {
			t.Errorf("a stream of %.30q: got %d, want 400", page, status)
		}
	}
}

// message reads up to the empty line; "": the stream has ended.
func message(from *bufio.Reader) string {
	var b strings.Builder
	for {
		line, err := from.ReadString('\n')
		if err != nil {
			return ""
		}
		if line == "\n" {
			return b.String()
		}
		b.WriteString(line)
	}
}

func TestStates(t *testing.T) {
	now := time.Now()
	for _, c := range []struct {
		status     ops.DestinationStatus
		configured bool
		want       string
	}{
		{ops.DestinationStatus{Paused: true, LeaseOwner: "x", FailingSince: &now}, true, statePaused},
		{ops.DestinationStatus{}, true, stateNoRelay},
		{ops.DestinationStatus{}, false, stateNotConfigured},
		{ops.DestinationStatus{LeaseOwner: "x", FailingSince: &now}, true, stateFailing},
		{ops.DestinationStatus{LeaseOwner: "x"}, false, stateRunning},
		{ops.DestinationStatus{LeaseOwner: "x", Shards: []ops.ShardStatus{{LeaseOwner: "x"}, {}}}, true, stateNoRelay},
	} {
		if got := state(c.status, c.configured); got != c.want {
			t.Errorf("%+v: got %s, want %s", c.status, got, c.want)
		}
	}
	row := destinationRow{here: here{Mine: true, Troubles: []relay.EndpointStatus{{State: "paused"}, {State: "open"}, {State: "open"}}}}
	if got := row.Breaker(); got != "2 open, paused" {
		t.Errorf("got %q", got)
	}
	for _, u := range []struct {
		unit relay.UnitStatus
		want string
	}{
		{relay.UnitStatus{Alive: true, Leased: true}, "leased"}, {relay.UnitStatus{Alive: true, Holder: "x"}, "standing by"},
		{relay.UnitStatus{Leased: true}, "failing"}, {relay.UnitStatus{Alive: true, Err: fmt.Errorf("x")}, "failing"},
		{relay.UnitStatus{Alive: true}, "waiting"},
	} {
		if got := unitState(u.unit); got != u.want {
			t.Errorf("%+v: got %s, want %s", u.unit, got, u.want)
		}
	}
}

// TestLiveEndsWithTheSecret: a secret that is replaced ends the live pages that were opened with it, and no others.
func TestLiveEndsWithTheSecret(t *testing.T) {
	secrets := map[string]string{}
	for _, name := range []string{"old", "other"} {
		secrets[name] = filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(secrets[name], []byte("the token of "+name+", long enough"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s := newSite(t, func(c *Config) {
		guard, err := access.New(access.Config{Tokens: []access.Credential{
			{Name: "old", Role: access.Viewer, Secret: access.File(secrets["old"])},
			{Name: "other", Role: access.Viewer, Secret: access.File(secrets["other"])},
		}})
		if err != nil {
			t.Fatal(err)
		}
		c.Access = guard
	})
	open := func(name string) *bufio.Reader {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.server.URL+"/live?page=/", nil)
		s.must(err)
		request.Header.Set("Authorization", "Bearer the token of "+name+", long enough")
		answer, err := http.DefaultClient.Do(request)
		s.must(err)
		t.Cleanup(func() { answer.Body.Close() })
		if answer.StatusCode != http.StatusOK {
			t.Fatalf("%s: status %d", name, answer.StatusCode)
		}
		return bufio.NewReader(answer.Body)
	}
	messages := func(from *bufio.Reader, most int) (n int) {
		for n < most {
			line, err := from.ReadString('\n')
			if err != nil {
				return n
			}
			if strings.HasPrefix(line, "event: ") {
				n++
			}
		}
		return n
	}
	old, other := open("old"), open("other")
	if messages(old, 1) != 1 || messages(other, 1) != 1 {
		t.Fatal("a live page has sent nothing")
	}
	s.must(os.WriteFile(secrets["old"], []byte("another token, long enough as well"), 0o600))
	if n := messages(old, 3); n > 1 { // one may have been on its way
		t.Errorf("%d more messages after the secret was replaced, want the end", n)
	}
	if n := messages(other, 2); n != 2 {
		t.Error("the live page of another has ended as well")
	}
}
