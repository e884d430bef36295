package relay

import (
	"strings"
	"testing"
	"time"
)

func TestPolicyDecide(t *testing.T) {
	retry := RetryPolicy{Base: time.Minute, Factor: 2, Max: time.Hour, MaxAttempts: 8}
	tests := []struct {
		name    string
		outcome Outcome
		before  int
		probe   bool
		charge  bool
		want    verdict
	}{
		{"published", Outcome{Kind: Published}, 2, false, false,
			verdict{status: StatusPublished, attempts: 3}},
		{"the zero outcome is tried again", Outcome{}, 0, false, false,
			verdict{status: StatusFailed, attempts: 1, nextIn: time.Minute, code: "UNKNOWN"}},
		{"a kind that nobody knows is tried again", Outcome{Kind: 99, Code: "X"}, 0, false, false,
			verdict{status: StatusFailed, attempts: 1, nextIn: time.Minute, code: "X"}},
		{"back-off doubles", Outcome{Code: "X"}, 3, false, false,
			verdict{status: StatusFailed, attempts: 4, nextIn: 8 * time.Minute, code: "X"}},
		{"back-off is capped", Outcome{Code: "X"}, 6, false, false,
			verdict{status: StatusFailed, attempts: 7, nextIn: time.Hour, code: "X"}},
		{"Retry-After is the least", Outcome{Code: "X", After: 5 * time.Minute}, 0, false, false,
			verdict{status: StatusFailed, attempts: 1, nextIn: 5 * time.Minute, code: "X"}},
		{"attempts run out", Outcome{Code: "X", Message: "no"}, 7, false, false,
			verdict{status: StatusQuarantined, attempts: 8, code: CodeExhausted, message: "gave up after 8 attempts; the last: X no"}},
		{"reject is final at once", Outcome{Kind: Reject, Code: "HTTP_422"}, 0, false, false,
			verdict{status: StatusQuarantined, attempts: 1, code: "HTTP_422"}},
		{"unavailable charges nothing", Outcome{Kind: Unavailable, Code: "DIAL"}, 7, false, false,
			verdict{status: StatusPending, attempts: 7, code: "DIAL"}},
		{"unavailable is charged if asked for", Outcome{Kind: Unavailable, Code: "DIAL"}, 7, false, true,
			verdict{status: StatusQuarantined, attempts: 8, code: CodeExhausted, message: "gave up after 8 attempts; the last: DIAL"}},
		{"trouble charges", Outcome{Code: "HTTP_503", Trouble: true}, 0, false, false,
			verdict{status: StatusFailed, attempts: 1, nextIn: time.Minute, code: "HTTP_503"}},
		{"but not while probing", Outcome{Code: "HTTP_503", Trouble: true}, 7, true, false,
			verdict{status: StatusPending, attempts: 7, code: "HTTP_503"}},
		{"a probe that fails for the event's sake charges", Outcome{Code: "HTTP_500"}, 0, true, false,
			verdict{status: StatusFailed, attempts: 1, nextIn: time.Minute, code: "HTTP_500"}},
		{"a shutdown charges nothing, even if outages do", Outcome{Kind: Released}, 7, false, true,
			verdict{status: StatusPending, attempts: 7}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			p := policy{retry: retry, chargeOutages: test.charge}
			if got := p.decide(test.outcome, test.before, test.probe, 0); got != test.want {
				t.Errorf("decide() = %+v, want %+v", got, test.want)
			}
		})
	}
}

func TestPolicyKeepsErrorTextInBounds(t *testing.T) {
	long := Outcome{Kind: Reject, Code: strings.Repeat("C", 100), Message: "a\x00b\xff" + strings.Repeat("é", 2000)}
	v := policy{}.decide(long, 0, false, 0)
	if len(v.code) != MaxErrorCode || len(v.message) > MaxErrorMessage || !strings.HasPrefix(v.message, "a\uFFFDb\uFFFDé") {
		t.Errorf("code of %d bytes, message of %d bytes %.10q", len(v.code), len(v.message), v.message)
	}
	if v := (policy{codeOnly: true}).decide(long, 0, false, 0); v.message != "" {
		t.Errorf("message = %q with codeOnly, want none", v.message)
	}
}

func TestRetryDelay(t *testing.T) {
	list := RetryPolicy{Delays: []time.Duration{5 * time.Second, 30 * time.Second, 2 * time.Minute}}
	for attempt, want := range map[int]time.Duration{1: 5 * time.Second, 2: 30 * time.Second, 3: 2 * time.Minute, 9: 2 * time.Minute} {
		if got := list.delay(attempt, 0.5); got != want {
			t.Errorf("delay(%d) = %v, want %v", attempt, got, want)
		}
	}
	jitter := RetryPolicy{Base: 10 * time.Second, Factor: 2, Max: time.Hour, Jitter: 0.5}
	if got := jitter.delay(2, 0.5); got != 15*time.Second {
		t.Errorf("delay with half of the jitter = %v, want 15s", got)
	}
	huge := RetryPolicy{Base: time.Second, Factor: 100, Max: time.Hour}
	if got := huge.delay(1_000_000, 0); got != time.Hour {
		t.Errorf("delay after a million attempts = %v, want the cap", got)
	}
}
