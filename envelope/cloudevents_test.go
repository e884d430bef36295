package envelope

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/pillarbox-dev/pillarbox/relay"
)

var fullOptions = CloudEvents{
	Source: "https://example.com/cases", TypePrefix: "com.example.", SchemaBase: "https://schemas.example.com/",
	BinaryType: "application/avro",
	Extensions: map[string]string{"traceparent": "traceparent", "correlationid": "correlationId", "gone": "gone"},
}

func cloudEvent(target Target, inBinary bool) Config {
	options := fullOptions
	options.Binary = inBinary
	return Config{Name: NameCloudEvents, Target: target, CloudEvents: &options}
}

func TestCloudEventsStructured(t *testing.T) {
	const head = `{"specversion":"1.0","id":"0197-1","source":"https://example.com/cases","type":"com.example.CaseAccepted","subject":"CASE-1",` +
		`"time":"2026-07-03T02:20:13.123456Z","dataschema":"https://schemas.example.com/reg.case.CaseAccepted.v2","partitionkey":"CASE-1",` +
		`"aggregatetype":"case","aggregateversion":"9007199254740993","eventversion":2,"schemaref":"reg.case.CaseAccepted.v2",` +
		`"correlationid":"c 1","traceparent":"00-ab"`
	for _, tt := range []struct {
		name  string
		event *relay.Event
		want  string
	}{
		{"JSON", newEvent(), head + `,"datacontenttype":"application/json","data":` + string(newEvent().Payload) + `}`},
		{"null", newEvent(payloadIs("null")), head + `,"datacontenttype":"application/json","data":null}`},
		{"bytes", newEvent(binary), head + `,"datacontenttype":"application/avro","data_base64":"AP8i"}`},
		{"no bytes", newEvent(emptyOne), head + `,"datacontenttype":"application/avro","data_base64":""}`},
		// The bindings demand a value with the attributes, which is no tombstone.
		{"no payload", newEvent(without), head + `}`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			want := Message{Key: []byte("CASE-1"), Value: []byte(tt.want),
				ContentType: "application/cloudevents+json; charset=UTF-8", Time: created}
			got := wrap(t, cloudEvent(HTTP, false), tt.event)
			same(t, got, want)
			if len(got.Headers) != 0 {
				t.Errorf("headers %v, want none: Content-Type says it", got.Headers)
			}
			got = wrap(t, cloudEvent(Kafka, false), tt.event)
			same(t, got, want)
			if got, want := headerText(got.Headers), `content-type="application/cloudevents+json; charset=UTF-8" `; got != want {
				t.Errorf("headers %s, want %s", got, want)
			}
		})
	}
}

func TestCloudEventsBinary(t *testing.T) {
	unusual := newEvent(func(e *relay.Event) {
		e.AggregateID, e.AggregateType, e.SchemaRef = `Euro € 😀 100% "q"`, "a\u00a0b", "dir/ż 1"
	})
	for _, tt := range []struct {
		name   string
		target Target
		event  *relay.Event
		want   string
	}{
		{"Kafka", Kafka, newEvent(),
			`ce_specversion="1.0" ce_id="0197-1" ce_source="https://example.com/cases" ce_type="com.example.CaseAccepted" ` +
				`ce_subject="CASE-1" ce_time="2026-07-03T02:20:13.123456Z" ce_dataschema="https://schemas.example.com/reg.case.CaseAccepted.v2" ` +
				`ce_partitionkey="CASE-1" ce_aggregatetype="case" ce_aggregateversion="9007199254740993" ce_eventversion="2" ` +
				`ce_schemaref="reg.case.CaseAccepted.v2" ce_correlationid="c 1" ce_traceparent="00-ab" content-type="application/json" `},
		{"Kafka, UTF-8 as it is", Kafka, unusual, `ce_subject="Euro € 😀 100% \"q\"" `},
		{"Kafka, bytes", Kafka, newEvent(binary), `content-type="application/avro" `},
		{"HTTP", HTTP, newEvent(),
			`ce-specversion="1.0" ce-id="0197-1" ce-source="https://example.com/cases" ce-type="com.example.CaseAccepted" ` +
				`ce-subject="CASE-1" ce-time="2026-07-03T02:20:13.123456Z" ce-dataschema="https://schemas.example.com/reg.case.CaseAccepted.v2" ` +
				`ce-partitionkey="CASE-1" ce-aggregatetype="case" ce-aggregateversion="9007199254740993" ce-eventversion="2" ` +
				`ce-schemaref="reg.case.CaseAccepted.v2" ce-correlationid="c%201" ce-traceparent="00-ab" `},
		// The example of the HTTP binding, 3.1.3.2.
		{"HTTP, escaped", HTTP, unusual, `ce-subject="Euro%20%E2%82%AC%20%F0%9F%98%80%20100%25%20%22q%22" `},
		{"HTTP, escaped too", HTTP, unusual, `ce-aggregatetype="a%C2%A0b" `},
		{"dataschema", HTTP, unusual, `ce-dataschema="https://schemas.example.com/dir/%25C5%25BC%25201" `},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m := wrap(t, cloudEvent(tt.target, true), tt.event)
			if got := headerText(m.Headers); got != tt.want && (strings.HasPrefix(tt.want, "ce_spec") ||
				strings.HasPrefix(tt.want, "ce-spec") ||
				!strings.Contains(got, tt.want)) {
				t.Errorf("headers %s\nwant    %s", got, tt.want)
			}
			want := Message{Key: []byte("CASE-1"), Value: tt.event.Payload, ContentType: "application/json", Time: created}
			if tt.event.Binary {
				want.ContentType = "application/avro"
			}
			same(t, m, want)
		})
	}
	for _, target := range []Target{Kafka, HTTP} {
		m := wrap(t, cloudEvent(target, true), newEvent(without))
		same(t, m, Message{Key: []byte("CASE-1"), Time: created})
		if strings.Contains(headerText(m.Headers), "content-type") {
			t.Errorf("%s: a content type of nothing: %v", target, m.Headers)
		}
	}
}

// Only what CloudEvents requires is there when the event says nothing more.
func TestCloudEventsLeavesOutWhatIsEmpty(t *testing.T) {
	m := wrap(t, Config{Name: NameCloudEvents, Target: Kafka, CloudEvents: &CloudEvents{Source: "/cases"}},
		&relay.Event{ID: "1", Type: "T", Version: 1, CreatedAt: created, Payload: []byte("{}")})
	const want = `{"specversion":"1.0","id":"1","source":"/cases","type":"T","time":"2026-07-03T02:20:13.123456Z","eventversion":1,` +
		`"datacontenttype":"application/json","data":{}}`
	if string(m.Value) != want {
		t.Errorf("value %s\nwant  %s", m.Value, want)
	}
	if m.Key != nil {
		t.Errorf("key %q, want none", m.Key)
	}
}

// A real server gets the headers as the binding wants them.
func TestCloudEventsOverHTTP(t *testing.T) {
	got := make(chan http.Header, 1)
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got <- r.Header }))
	defer server.Close()
	e := newEvent(func(e *relay.Event) { e.AggregateID = "ż \"1\" ~!" })
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	for _, h := range wrap(t, cloudEvent(HTTP, true), e).Headers {
		request.Header.Set(h.Name, string(h.Value))
	}
	response, err := server.Client().Do(request)
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	header := <-got
	if got, want := header.Get("Ce-Subject"), "%C5%BC%20%221%22%20~!"; got != want {
		t.Errorf("subject %q, want %q", got, want)
	}
	if got, want := header.Get("Ce-Id"), e.ID; got != want {
		t.Errorf("id %q, want %q", got, want)
	}
}

func TestAppendEscaped(t *testing.T) {
	for value, want := range map[string]string{
		"": "", "plain/!~": "plain/!~", " ": "%20", "a b": "a%20b", `"`: "%22", "%": "%25", "\x7f": "%7F",
		"\t\r\n":   "%09%0D%0A",
		"Euro € 😀": "Euro%20%E2%82%AC%20%F0%9F%98%80", "%20": "%2520",
	} {
		if got := string(appendEscaped(nil, value)); got != want {
			t.Errorf("%q: %q, want %q", value, got, want)
		}
	}
}
