package relay

import (
	"fmt"
	"math"
	"strings"
	"time"
	"unicode/utf8"
)

// policy decides what becomes of a delivery after an attempt. It is pure: the same outcome, attempts and chance give the
// same verdict.
type policy struct {
	retry         RetryPolicy
	chargeOutages bool
	codeOnly      bool
}

// verdict is what becomes of a delivery.
type verdict struct {
	// status is PUBLISHED, FAILED, QUARANTINED, or PENDING: back to the head of its lane, nothing charged.
	status   Status
	attempts int // attempt_count from now on
	nextIn   time.Duration
	code     string
	message  string
}

// decide judges the outcome of an attempt. before is the number of attempts that were charged earlier; probe says that
// the attempt only asked whether an endpoint is back; chance in [0,1) draws the jitter.
func (p policy) decide(o Outcome, before int, probe bool, chance float64) verdict {
	v := verdict{attempts: before + 1, code: o.Code, message: o.Message}
	switch {
	case o.Kind == Published:
		return verdict{status: StatusPublished, attempts: before + 1}
	case o.Kind == Reject:
		v.status = StatusQuarantined
	case o.Kind == Released:
		return verdict{status: StatusPending, attempts: before}
	case !p.chargeOutages && (o.Kind == Unavailable || probe && o.Trouble):
		v.status, v.attempts = StatusPending, before
	default: // Retry, and whatever a destination may make up: tried again, never lost
		v = p.failed(v, o, chance)
	}
	if v.code == "" {
		v.code = "UNKNOWN"
	}
	v.code = clip(v.code, MaxErrorCode)
	v.message = clip(v.message, MaxErrorMessage)
	if p.codeOnly {
		v.message = ""
	}
	return v
}

func (p policy) failed(v verdict, o Outcome, chance float64) verdict {
	if v.attempts < p.retry.MaxAttempts {
		v.status = StatusFailed
		v.nextIn = max(p.retry.delay(v.attempts, chance), o.After)
		return v
	}
	return p.exhausted(v)
}

// exhausted is what becomes of a delivery that has failed for the last time.
func (p policy) exhausted(v verdict) verdict {
	v.status = StatusQuarantined
	v.message = strings.TrimSpace(fmt.Sprintf("gave up after %d attempts; the last: %s %s", v.attempts, v.code, v.message))
	v.code = CodeExhausted
	return v
}

// delay is the back-off after the given attempt, the first being 1.
func (r RetryPolicy) delay(attempt int, chance float64) time.Duration {
	delay := 0.0
	if n := len(r.Delays); n > 0 {
		delay = float64(r.Delays[min(attempt, n)-1])
	} else {
		delay = min(float64(r.Base)*math.Pow(r.Factor, float64(attempt-1)), float64(r.Max))
	}
	if r.Jitter > 0 {
		delay -= delay * r.Jitter * chance
	}
	return time.Duration(delay)
}

// clip shortens s to at most n bytes of valid UTF-8 without NUL, which a database would refuse.
func clip(s string, n int) string {
	s = strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "\uFFFD")
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}
