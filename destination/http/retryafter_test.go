package http

import (
	"net/http"
	"strconv"
	"testing"
	"time"
)

func TestRetryAfter(t *testing.T) {
	now := time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)
	const limit = time.Hour
	const sent = "Sun, 29 Nov 2026 10:00:00 GMT" // the answer's clock, two hours behind ours
	for _, tt := range []struct {
		value, date string
		want        time.Duration
		ok          bool
	}{
		{"", "", 0, false},
		{"0", "", 0, true},
		{"1", "", time.Second, true},
		{"007", "", 7 * time.Second, true},
		{"3600", "", limit, true},
		{"3601", "", limit, true},
		{"9223372036", "", limit, true},
		{"9223372037", "", 0, false}, // more than a Duration holds
		{"9223372036854775807", "", 0, false},
		{"9223372036854775808", "", 0, false},
		{"99999999999999999999999999", "", 0, false},
		{"-1", "", 0, false},
		{"+1", "", 0, false},
		{"1.5", "", 0, false},
		{"1e3", "", 0, false},
		{"0x10", "", 0, false},
		{"1 2", "", 0, false},
		{"1s", "", 0, false},
		{"soon", "", 0, false},
		{"١", "", 0, false}, // a digit, and not one of ASCII
		{"Sun, 29 Nov 2026 10:00:30 GMT", sent, 30 * time.Second, true},
		{"Sunday, 29-Nov-26 10:00:30 GMT", sent, 30 * time.Second, true},
		{"Sun Nov 29 10:00:30 2026", sent, 30 * time.Second, true},
		{"Sun, 29 Nov 2026 10:00:00 GMT", sent, 0, true},
		{"Sun, 29 Nov 2026 09:59:59 GMT", sent, 0, false},
		{"Sun, 29 Nov 2026 23:00:00 GMT", sent, limit, true},
		{"Fri, 31 Dec 9999 23:59:59 GMT", sent, limit, true},
		{"Sun, 29 Nov 2026 12:00:30 GMT", "", 30 * time.Second, true}, // no Date: our clock
		{"Sun, 29 Nov 2026 12:00:30 GMT", "yesterday", 30 * time.Second, true},
		{"Sun, 29 Nov 2026 10:00:30", sent, 0, false},
		{"2026-11-29T10:00:30Z", sent, 0, false},
		{"Sun, 32 Nov 2026 10:00:30 GMT", sent, 0, false},
	} {
		h := http.Header{"Retry-After": {tt.value}, "Date": {tt.date}}
		if got, ok := retryAfter(h, now, limit); got != tt.want || ok != tt.ok {
			t.Errorf("Retry-After %q, Date %q: %s, %v, want %s, %v", tt.value, tt.date, got, ok, tt.want, tt.ok)
		}
	}
}

func FuzzRetryAfter(f *testing.F) {
	for _, value := range []string{
		"0", "120", "-1", "1.5", "9223372037", "Sun, 29 Nov 2026 10:00:30 GMT", "Sunday, 29-Nov-26 10:00:30 GMT",
	} {
		f.Add(value, "Sun, 29 Nov 2026 10:00:00 GMT")
	}
	f.Fuzz(func(t *testing.T, value, date string) {
		now := time.Unix(1_800_000_000, 0)
		got, ok := retryAfter(http.Header{"Retry-After": {value}, "Date": {date}}, now, time.Hour)
		if got < 0 || got > time.Hour || !ok && got != 0 {
			t.Fatalf("Retry-After %q, Date %q: %s, %v", value, date, got, ok)
		}
		if seconds, err := strconv.ParseUint(value, 10, 30); err == nil && value[0] != '+' {
			if want := min(time.Duration(seconds)*time.Second, time.Hour); !ok || got != want {
				t.Fatalf("Retry-After %q: %s, %v, want %s", value, got, ok, want)
			}
		}
	})
}
