package relay

import (
	"fmt"
	"time"
)

// BreakerConfig says when an endpoint counts as down and how it is probed. The rule is in the destination's hands only
// through Outcome: Unavailable and Trouble count, everything else does not.
type BreakerConfig struct {
	// Failures in a row open the breaker. Default 10. An Unavailable opens it when nothing has succeeded since
	// the failures began, whatever their number, so that an outage is noticed at its first event.
	Failures int
	// Rate opens it too: this part of at least MinSamples attempts within Window. Defaults 0.7, 10, 5 min.
	Rate       float64
	MinSamples int
	Window     time.Duration
	// Probe is the time until the first probe, doubling to MaxProbe. Defaults 30 s, 15 min.
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
