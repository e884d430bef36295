package relay

import (
	"testing"
	"time"
)

var t0 = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

var (
	dialFailed = Outcome{Kind: Unavailable, Code: "DIAL"}
	overloaded = Outcome{Kind: Retry, Code: "HTTP_503", Trouble: true}
)

func testBreaker() breaker {
	return newBreaker(BreakerConfig{}.withDefaults())
}

// probe lets the breaker's time come, and starts a call.
func probe(t *testing.T, b *breaker) time.Time {
	t.Helper()
	if n := b.room(b.until.Add(-1), 0, 8); n != 0 {
		t.Fatalf("room before the time = %d, want 0", n)
	}
	if n := b.room(b.until, 1, 8); n != 0 {
		t.Fatalf("room while another call is under way = %d, want 0", n)
	}
	if n := b.room(b.until, 0, 8); n != 1 {
		t.Fatalf("room for a probe = %d, want 1", n)
	}
	if !b.start() {
		t.Fatal("start() did not say that it is a probe")
	}
	return b.until
}

func TestBreakerOpensAtOnceWhenUnavailable(t *testing.T) {
	b := testBreaker()
	if !b.bad(t0, dialFailed, 8) {
		t.Fatal("an Unavailable did not open it")
	}
	now := t0
	for _, want := range []time.Duration{time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second} {
		if got := b.until.Sub(now); got != want {
			t.Errorf("next probe in %v, want %v", got, want)
		}
		now = probe(t, &b)
		if b.bad(now, dialFailed, 8) {
			t.Error("a failed probe is reported as an opening")
		}
	}
	for range 20 {
		now = probe(t, &b)
		b.bad(now, dialFailed, 8)
	}
	if got := b.until.Sub(now); got != 15*time.Minute {
		t.Errorf("probes come every %v in the end, want 15m", got)
	}
}

// An endpoint that was paused while it answered, for what it answered, and is down when it is probed, is not probed without a rest.
func TestBreakerBacksOffAfterAPause(t *testing.T) {
	b := testBreaker()
	b.pause(t0, CodeRejectStorm)
	if got := b.until.Sub(t0); got != 5*time.Minute {
		t.Errorf("first probe in %v, want 5m", got)
	}
	for _, want := range []time.Duration{time.Second, 2 * time.Second, 4 * time.Second} {
		now := probe(t, &b)
		b.bad(now, dialFailed, 8)
		if got := b.until.Sub(now); got != want {
			t.Errorf("next probe in %v, want %v", got, want)
		}
	}
}

func TestBreakerOpensAfterTroubleInARow(t *testing.T) {
	b := testBreaker()
	for i := range 9 {
		if b.bad(t0, overloaded, 64) {
			t.Fatalf("opened after %d", i+1)
		}
	}
	if !b.bad(t0, overloaded, 64) {
		t.Fatal("not open after 10 in a row")
	}
	if got := b.until.Sub(t0); got != 30*time.Second {
		t.Errorf("first probe in %v, want 30s", got)
	}
}

func TestBreakerOpensByRate(t *testing.T) {
	b := testBreaker()
	now, opened := t0, false
	for i := 0; i < 40 && !opened; i++ {
		now = now.Add(time.Second)
		if i%5 == 0 {
			b.good(now, 8)
			continue
		}
		opened = b.bad(now, overloaded, 8)
	}
	if !opened {
		t.Error("80 % trouble did not open it")
	}
	b, now = testBreaker(), t0
	for i := range 1000 {
		now = now.Add(time.Second)
		if i%2 == 0 {
			b.good(now, 8)
		} else if b.bad(now, overloaded, 8) {
			t.Fatal("50 % trouble opened it")
		}
	}
}

func TestBreakerHalvesAndRampsUp(t *testing.T) {
	b := testBreaker()
	for _, want := range []int{8, 4, 2, 1, 1} {
		b.bad(t0, overloaded, 16)
		if got := b.room(t0, 0, 16); got != want {
			t.Errorf("room = %d, want %d", got, want)
		}
	}
	for _, want := range []int{2, 4, 8, 16} {
		b.good(t0, 16)
		if got := b.room(t0, 0, 16); got != want {
			t.Errorf("room = %d, want %d", got, want)
		}
	}
	b.bad(t0, dialFailed, 16)
	now := probe(t, &b)
	if !b.good(now, 16) {
		t.Fatal("a good probe did not close it")
	}
	if got := b.room(now, 0, 16); got != 1 {
		t.Errorf("room after it closed = %d, want 1", got)
	}
}

func TestBreakerHonoursRetryAfterAndPause(t *testing.T) {
	b := testBreaker()
	b.bad(t0, Outcome{Kind: Unavailable, Code: "HTTP_429", After: time.Hour}, 8)
	if got := b.until.Sub(t0); got != time.Hour {
		t.Errorf("probe in %v, want Retry-After", got)
	}
	b = testBreaker()
	b.bad(t0, Outcome{Kind: Unavailable, Code: "TLS", Pause: true}, 8)
	if b.state != paused || b.until.Sub(t0) != 5*time.Minute {
		t.Errorf("%v until %v, want paused for 5m", b.state, b.until.Sub(t0))
	}
}

func TestBreakerIgnoresStragglers(t *testing.T) {
	b := testBreaker()
	b.bad(t0, dialFailed, 8)
	until := b.until
	b.bad(t0.Add(time.Millisecond), dialFailed, 8)
	if b.good(t0.Add(2*time.Millisecond), 8) || b.state != open || b.until != until {
		t.Errorf("a call from before the outage changed it: %v, until %v", b.state, b.until)
	}
}

func TestGuard(t *testing.T) {
	g := newGuard(GuardConfig{}.withDefaults())
	for i := range 19 {
		if g.rejected(t0) {
			t.Fatalf("tripped after %d", i+1)
		}
	}
	g.published(t0)
	for i := range 19 {
		if g.rejected(t0) {
			t.Fatalf("tripped after a success and %d", i+1)
		}
	}
	if !g.rejected(t0) {
		t.Error("20 in a row did not trip it")
	}
	now, tripped := t0.Add(time.Hour), false
	for i := 0; i < 60 && !tripped; i++ {
		now = now.Add(100 * time.Millisecond)
		if i%2 == 0 {
			g.published(now)
		} else {
			tripped = g.rejected(now)
		}
	}
	if !tripped {
		t.Error("half of 50 in a minute did not trip it")
	}
	off := newGuard(GuardConfig{Rejects: -1}.withDefaults())
	for range 1000 {
		if off.rejected(t0) {
			t.Fatal("tripped although it is off")
		}
	}
}
