package outbox

import (
	"context"
	"encoding/json"
	"maps"
	"strings"
	"testing"
)

func TestEncodeHeaders(t *testing.T) {
	for _, c := range []struct {
		name    string
		headers map[string]string
		want    string
	}{
		{"none", nil, `{}`},
		{"empty", map[string]string{}, `{}`},
		{"one", map[string]string{"a": "b"}, `{"a":"b"}`},
		{"sorted", map[string]string{"b": "2", "a": "1", "C": "3"}, `{"C":"3","a":"1","b":"2"}`},
		{"escaped", map[string]string{"a": "say \"hi\" \\ \t <&>"}, `{"a":"say \"hi\" \\ \t <&>"}`},
		{"beyond ASCII", map[string]string{"a": "Zürich \u2028 😀"}, "{\"a\":\"Zürich \u2028 😀\"}"},
		{"empty value", map[string]string{"a": ""}, `{"a":""}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := encodeHeaders(c.headers)
			if got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
			var back map[string]string
			if err := json.Unmarshal([]byte(got), &back); err != nil || !maps.Equal(back, c.headers) {
				t.Errorf("read back: %v, %v", back, err)
			}
		})
	}
}

func TestTraceHeaders(t *testing.T) {
	for _, c := range []struct {
		name  string
		own   map[string]string
		trace []header
		want  string
	}{
		{"added", nil, []header{{"traceparent", "00-1"}}, `{"traceparent":"00-1"}`},
		{"beside own", map[string]string{"a": "1"}, []header{{"traceparent", "00-1"}}, `{"a":"1","traceparent":"00-1"}`},
		{"own wins", map[string]string{"TraceParent": "mine"}, []header{{"traceparent", "00-1"}}, `{"TraceParent":"mine"}`},
		{"last wins", nil, []header{{"Baggage", "x"}, {"baggage", "y"}}, `{"baggage":"y"}`},
		{"bad ones are left out", nil, []header{{"b ad", "x"}, {"baggage", "a\r\nb"}, {"", "x"}, {"ok", "1"}}, `{"ok":"1"}`},
		{"what does not fit is left out", nil, []header{{"baggage", strings.Repeat("x", 200)}, {"ok", "1"}}, `{"ok":"1"}`},
		{"not more than allowed", map[string]string{"a": "1", "b": "2"}, []header{{"c", "3"}, {"d", "4"}}, `{"a":"1","b":"2","c":"3"}`},
		{"nothing to add", map[string]string{"a": "1"}, nil, `{"a":"1"}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			box, err := New(Postgres, Options{
				MaxHeaders: 3, MaxHeaderBytes: 100,
				Trace: func(_ context.Context, set func(name, value string)) {
					for _, h := range c.trace {
						set(h.name, h.value)
					}
				},
			})
			if err != nil {
				t.Fatal(err)
			}
			before := maps.Clone(c.own)
			if got := box.headersJSON(c.own, box.traceHeaders(t.Context())); got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
			if !maps.Equal(before, c.own) {
				t.Errorf("the caller's headers became %v", c.own)
			}
		})
	}
}
