package relay

import (
	"fmt"
	"time"
)

// BreakerConfig says when an endpoint counts as down and how it is probed. An Unavailable opens the breaker at once; a
// Retry with Trouble counts towards it; everything else shows that the endpoint is there.
type BreakerConfig struct {
	// Failures in a row open the breaker. Default 10.
	Failures int
	// Rate opens it too: this part of at least MinSamples attempts within Window. Defaults 0.7, 10, 5 min.
	Rate       float64
	MinSamples int
	Window     time.Duration
	// Probe is the time until the first probe, doubling to MaxProbe. Defaults 30 s, 15 min. After an Unavailable the
	// first probes come sooner, from a thirtieth of Probe on, so that a restart of the other side costs a second.
	Probe    time.Duration
	MaxProbe time.Duration
	// PauseProbe is the time between probes of an endpoint that is paused. Default 5 min.
	PauseProbe time.Duration
}

func (b BreakerConfig) withDefaults() BreakerConfig {
	setDefault(&b.Failures, 10)
	setDefault(&b.Rate, 0.7)
	setDefault(&b.MinSamples, 10)
	setDefault(&b.Window, 5*time.Minute)
	setDefault(&b.Probe, 30*time.Second)
	setDefault(&b.MaxProbe, 15*time.Minute)
	setDefault(&b.PauseProbe, 5*time.Minute)
	return b
}

func (b BreakerConfig) problems() (problems []error) {
	if b.Failures < 1 || b.MinSamples < 1 {
		problems = append(problems, fmt.Errorf("breaker.failures and breaker.min_samples must be at least 1"))
	}
	if b.Rate <= 0 || b.Rate > 1 {
		problems = append(problems, fmt.Errorf("breaker.rate %v is outside 0 to 1", b.Rate))
	}
	if b.Probe <= 0 || b.MaxProbe < b.Probe || b.PauseProbe <= 0 || b.Window <= 0 {
		problems = append(problems, fmt.Errorf("breaker: probe, max_probe, pause_probe and window must be positive, and "+
			"max_probe at least probe"))
	}
	return problems
}

// GuardConfig says when so much is rejected that the fault must be ours (a revoked credential, a wrong deployment).
type GuardConfig struct {
	// Rejects of different events in a row, with no success between, pause the endpoint. Default 20; negative: no guard.
	Rejects int
	// Rate does so too: this part of at least MinSamples outcomes within Window. Defaults 0.5, 50, 1 min.
	Rate       float64
	MinSamples int
	Window     time.Duration
}

func (g GuardConfig) withDefaults() GuardConfig {
	setDefault(&g.Rejects, 20)
	setDefault(&g.Rate, 0.5)
	setDefault(&g.MinSamples, 50)
	setDefault(&g.Window, time.Minute)
	return g
}

func (g GuardConfig) problems() []error {
	if g.Rate <= 0 || g.Rate > 1 || g.MinSamples < 1 || g.Window <= 0 {
		return []error{fmt.Errorf("guard: rate must be within 0 to 1, min_samples at least 1 and window positive")}
	}
	return nil
}

// breaker keeps an endpoint that is down from being flooded. It is pure: it is told what happened and when, and answers
// how many calls may be under way.
type breaker struct {
	config BreakerConfig
	state  breakerState
	code   string    // why it is not closed
	until  time.Time // open: when the next probe may start
	wait   time.Duration

	fails  int // in a row
	recent rate
	// allowed is how many calls may be under way while closed; 0: as many as the endpoint takes. It is halved by
	// trouble and doubled by success.
	allowed int
}

type breakerState uint8

const (
	closed breakerState = iota
	open
	paused  // open, and waiting will not mend it: probed seldom
	probing // one call is under way to see whether the endpoint is back
)

func (s breakerState) String() string {
	return [...]string{"closed", "open", "paused", "probing"}[s]
}

func newBreaker(c BreakerConfig) breaker {
	return breaker{config: c, recent: rate{window: c.Window}}
}

// room tells how many more calls may start, when underWay are and the endpoint takes limit.
func (b *breaker) room(now time.Time, underWay, limit int) int {
	switch b.state {
	case closed:
		if b.allowed > 0 {
			limit = min(limit, b.allowed)
		}
		return limit - underWay
	case open, paused:
		if underWay == 0 && !now.Before(b.until) {
			return 1
		}
	}
	return 0
}

// start is told of each call that starts, and answers whether it is a probe.
func (b *breaker) start() (probe bool) {
	if b.state == closed {
		return false
	}
	b.state = probing
	return true
}

// good is told that the endpoint answered as one that is there. It reports whether that closed the breaker.
func (b *breaker) good(now time.Time, limit int) (didClose bool) {
	b.fails = 0
	if b.state != closed {
		if b.state != probing {
			return false // a straggler from before the outage proves nothing
		}
		b.state, b.code, b.wait, b.allowed = closed, "", 0, 1
		b.recent.clear(now)
		return true
	}
	b.recent.add(now, false)
	if b.allowed > 0 {
		if b.allowed *= 2; b.allowed >= limit {
			b.allowed = 0
		}
	}
	return false
}

// bad is told of an outcome that counts against the endpoint. It reports whether that opened the breaker.
func (b *breaker) bad(now time.Time, o Outcome, limit int) (didOpen bool) {
	b.fails++
	b.recent.add(now, true)
	switch {
	case b.state == open || b.state == paused: // a straggler
		return false
	case b.state == probing:
		b.wait = max(b.wait, b.config.Probe/60) // it has none when it was paused while it was closed
	case o.Kind == Unavailable:
		didOpen = true
		b.wait = b.config.Probe / 60 // doubled below
	case b.fails >= b.config.Failures || b.recent.exceeds(b.config.Rate, b.config.MinSamples):
		didOpen = true
		b.wait = b.config.Probe / 2
	default:
		if b.allowed == 0 {
			b.allowed = limit
		}
		b.allowed = max(1, b.allowed/2)
		return false
	}
	b.code = o.Code
	b.wait = min(2*b.wait, b.config.MaxProbe)
	b.state = open
	wait := b.wait
	if o.Pause {
		b.state, wait = paused, b.config.PauseProbe
	}
	b.until = now.Add(max(wait, o.After))
	return didOpen
}

// pause keeps the endpoint closed to all but a seldom probe.
func (b *breaker) pause(now time.Time, code string) {
	b.state, b.code = paused, code
	b.until = now.Add(b.config.PauseProbe)
}

// staysPaused is told of a Reject. It tells whether that, being the answer to a probe, says that what paused the endpoint goes on, and
// keeps it paused then.
func (b *breaker) staysPaused(now time.Time, o Outcome) bool {
	if b.state != probing || !o.Pause && b.code != CodeRejectStorm {
		return false
	}
	code := b.code
	if o.Pause {
		code = o.Code
	}
	b.pause(now, code)
	return true
}

// abandon is told that a probe ended without an answer (a shutdown, or there was nothing to send): another may start.
func (b *breaker) abandon() {
	if b.state == probing {
		b.state = open
	}
}

// guard notices that nearly everything is rejected. It is pure.
type guard struct {
	config  GuardConfig
	rejects int // in a row
	recent  rate
}

func newGuard(c GuardConfig) guard {
	return guard{config: c, recent: rate{window: c.Window}}
}

// published is told of a success.
func (g *guard) published(now time.Time) {
	g.rejects = 0
	g.recent.add(now, false)
}

// rejected is told of a Reject, and answers whether that is one too many.
func (g *guard) rejected(now time.Time) (trips bool) {
	if g.config.Rejects < 0 {
		return false
	}
	g.rejects++
	g.recent.add(now, true)
	if g.rejects < g.config.Rejects && !g.recent.exceeds(g.config.Rate, g.config.MinSamples) {
		return false
	}
	g.rejects = 0
	g.recent.clear(now)
	return true
}
