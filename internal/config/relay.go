package config

import (
	"maps"
	"slices"
	"time"

	"github.com/pillarbox-dev/pillarbox/relay"
)

// Names returns the names of the destinations, sorted.
func (c *Config) Names() []string { return slices.Sorted(maps.Keys(c.Destinations)) }

// RelayConfig returns what the file says about the relay and its destinations. Store, Owner, Observer and Logger, and the
// Destination of each destination, are for the caller to fill in.
func (c *Config) RelayConfig() relay.Config {
	r := relay.Config{Lease: time.Duration(c.Relay.Lease), Drain: time.Duration(c.Relay.Drain)}
	for _, name := range c.Names() {
		r.Destinations = append(r.Destinations, c.Destinations[name].relay(name))
	}
	return r
}

func (d Destination) relay(name string) relay.DestinationConfig {
	r := relay.DestinationConfig{
		Name:             name,
		Topics:           relay.Topics(d.Topics),
		StartAtEnd:       d.Start == "end",
		NoLedger:         !orTrue(d.Ledger),
		Timeout:          time.Duration(d.Timeout),
		Concurrency:      d.Concurrency,
		MaxInFlight:      d.MaxInFlight,
		MaxInFlightBytes: int(d.MaxInFlightBytes),
		MaxHeldLanes:     d.MaxHeldLanes,
		Retry:            d.Retry.relay(),
		ChargeOutages:    d.ChargeOutages,
		CodeOnly:         !orTrue(d.ErrorText),
		Breaker: relay.BreakerConfig{
			Failures: d.Breaker.Failures, Rate: d.Breaker.Rate, MinSamples: d.Breaker.MinSamples,
			Window: time.Duration(d.Breaker.Window), Probe: time.Duration(d.Breaker.Probe),
			MaxProbe: time.Duration(d.Breaker.MaxProbe), PauseProbe: time.Duration(d.Breaker.PauseProbe),
		},
		Guard: relay.GuardConfig{
			Rejects: d.Guard.Rejects, Rate: d.Guard.Rate, MinSamples: d.Guard.MinSamples,
			Window: time.Duration(d.Guard.Window),
		},
	}
	if d.OnQuarantine == "hold" {
		r.OnQuarantine = relay.Hold
	}
	if !orTrue(d.Guard.Enabled) {
		r.Guard.Rejects = -1
	}
	return r
}

func (r Retry) relay() relay.RetryPolicy {
	policy := relay.RetryPolicy{
		Base: time.Duration(r.Base), Factor: r.Factor, Max: time.Duration(r.Max), MaxAttempts: r.MaxAttempts,
	}
	for _, delay := range r.Delays {
		policy.Delays = append(policy.Delays, time.Duration(delay))
	}
	if r.Jitter != nil {
		policy.Jitter = *r.Jitter
		if policy.Jitter == 0 {
			policy.Jitter = -1 // the relay's word for none
		}
	}
	return policy
}

func orTrue(b *bool) bool { return b == nil || *b }
