package http

import (
	"net/http"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/pillarbox-dev/pillarbox/relay"
)

func TestParseOverrides(t *testing.T) {
	got, err := ParseOverrides(map[string]string{
		"404": "retry", "402": "reject REJECTED_BALANCE", "409": "published", "5xx": "unavailable", "503": "  retry   SLOW_DOWN ",
	})
	want := []Override{
		{402, 402, relay.Reject, "REJECTED_BALANCE"}, {404, 404, relay.Retry, ""}, {409, 409, relay.Published, ""},
		{503, 503, relay.Retry, "SLOW_DOWN"}, {500, 599, relay.Unavailable, ""},
	}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("ParseOverrides = %v, %v, want %v", got, err, want)
	}
	if got, err := ParseOverrides(nil); got != nil || err != nil {
		t.Errorf("ParseOverrides(nil) = %v, %v", got, err)
	}
}

// All that is wrong is said at once, each with a hint.
func TestParseOverridesProblems(t *testing.T) {
	for text, hint := range map[string]string{
		"retry please now":                  "is too much",
		"":                                  "says nothing",
		"ignore":                            "is no meaning",
		"Retry":                             "is no meaning",
		"reject lower":                      "is no code",
		"reject 1ST":                        "is no code",
		"reject A\x00":                      "is no code",
		"published OK":                      "leave it out",
		"reject " + strings.Repeat("A", 41): "is no code",
	} {
		if _, err := ParseOverrides(map[string]string{"404": text}); err == nil || !strings.Contains(err.Error(), hint) {
			t.Errorf("%q: %v, want %q", text, err, hint)
		}
	}
	all := map[string]string{
		"1xx": "retry", "100": "retry", "6xx": "retry", "600": "retry", "40": "retry", "4000": "retry", "4x4": "retry",
		"4XX": "retry", "": "retry", "404.": "retry", "abc": "retry", "301": "published", "3xx": "published",
	}
	_, err := ParseOverrides(all)
	if n := strings.Count(err.Error(), "answers: "); n != len(all) {
		t.Errorf("%d problems, want %d:\n%v", n, len(all), err)
	}
}

func TestOverridesApply(t *testing.T) {
	overrides, err := ParseOverrides(map[string]string{
		"404": "retry", "402": "reject REJECTED_BALANCE", "409": "published", "5xx": "unavailable", "502": "reject",
		"504": "retry LATE", "401": "reject", "301": "reject",
	})
	if err != nil {
		t.Fatal(err)
	}
	a := newAnswers(Default, overrides)
	for status, want := range map[int]answer{
		402: {kind: relay.Reject, code: "REJECTED_BALANCE"},
		404: {kind: relay.Retry, code: "HTTP_404"},
		409: {kind: relay.Published},
		500: {kind: relay.Unavailable, code: "HTTP_500"},
		503: {kind: relay.Unavailable, code: "HTTP_503"},
		502: {kind: relay.Reject, code: "HTTP_502"},
		504: {kind: relay.Retry, code: "LATE", trouble: false}, // the class took the trouble away
		401: {kind: relay.Reject, code: "HTTP_401"},
		301: {kind: relay.Reject, code: "HTTP_301"},
		422: {kind: relay.Reject, code: "HTTP_422"}, // as it was
	} {
		got, after := a.judge(status, http.Header{"Retry-After": {"5"}}, time.Now(), time.Hour)
		if got != want {
			t.Errorf("%d: %+v, want %+v", status, got, want)
		}
		if wait := want.kind == relay.Retry || want.kind == relay.Unavailable; wait != (after == 5*time.Second) {
			t.Errorf("%d: after %s", status, after)
		}
	}
	a = newAnswers(Default, []Override{{503, 503, relay.Retry, ""}})
	if is, _ := a.judge(503, http.Header{}, time.Now(), time.Hour); !is.trouble {
		t.Error("503 as retry no longer counts as trouble")
	}
}

func FuzzParseOverrides(f *testing.F) {
	f.Add("404", "retry")
	f.Add("5xx", "reject REJECTED_BALANCE")
	f.Add("3xx", "published")
	f.Fuzz(func(t *testing.T, status, text string) {
		overrides, err := ParseOverrides(map[string]string{status: text})
		if err != nil {
			if len(overrides) > 0 || strings.ContainsAny(err.Error(), "\x00\x1b\n") {
				t.Fatalf("%v, %q", overrides, err)
			}
			return
		}
		o := overrides[0]
		if o.First < 200 || o.Last > 599 || o.First > o.Last || o.Kind > relay.Unavailable || len(o.Code) > relay.MaxErrorCode {
			t.Fatalf("%q: %q → %+v", status, text, o)
		}
		is, _ := newAnswers(Default, overrides).judge(o.Last, http.Header{}, time.Now(), time.Hour)
		if is.kind != o.Kind {
			t.Fatalf("%+v is not applied: %+v", o, is)
		}
	})
}
