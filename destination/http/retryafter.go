package http

import (
	"net/http"
	"strconv"
	"time"
)

// retryAfter reads the header Retry-After (RFC 9110 §10.2.3): whole seconds, or one of the three forms of an HTTP date,
// which counts from the answer's own Date, so that the two clocks need not agree. ok is false when there is none, or
// when it is negative, fractional, overflowing or garbage. The result is at most limit.
func retryAfter(h http.Header, now time.Time, limit time.Duration) (after time.Duration, ok bool) {
	value := h.Get("Retry-After")
	if value == "" {
		return 0, false
	}
	if after, ok = retrySeconds(value); !ok {
		at, err := http.ParseTime(value)
		if err != nil {
			return 0, false
		}
		if date, err := http.ParseTime(h.Get("Date")); err == nil {
			now = date
		}
		if after = at.Sub(now); after < 0 {
			return 0, false
		}
	}
	return min(after, limit), true
}

// retrySeconds reads digits alone: no sign, no fraction.
func retrySeconds(value string) (time.Duration, bool) {
	for _, c := range []byte(value) {
		if c < '0' || c > '9' {
			return 0, false
		}
	}
	seconds, err := strconv.ParseInt(value, 10, 64)
	if err != nil || seconds > int64(maxDuration/time.Second) {
		return 0, false
	}
	return time.Duration(seconds) * time.Second, true
}

const maxDuration = time.Duration(1<<63 - 1)
