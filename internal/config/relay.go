package config

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/pillarbox-dev/pillarbox/outbox/schema"
	"github.com/pillarbox-dev/pillarbox/relay"
)

// Names returns the names of the destinations, sorted.
func (c *Config) Names() []string { return slices.Sorted(maps.Keys(c.Destinations)) }

// ShardCount is in how many shards it is worked on.
func (d Destination) ShardCount() int { return max(1, d.Shards) }

// Units are how many shards of destinations one process may have to work on: all of them, when it is alone.
func (c *Config) Units() (units int) {
	for _, d := range c.Destinations {
		units += d.ShardCount()
	}
	return units
}

// A unit reads while it settles, so two connections are what it can use. The default gives no more than 40 of them, so that one
// process leaves a server with its usual 100 something for others; units that are more wait for each other.
const (
	connectionsOfUnit      = 2
	leastConnections       = 10
	mostConnectionsUnasked = 40
)

// RelayDatabase is the database with the number of connections that the relay's pool gets.
func (c *Config) RelayDatabase() Database {
	db := c.Database
	if db.MaxConnections == 0 && db.Dialect() == schema.Postgres {
		db.MaxConnections = min(max(leastConnections, connectionsOfUnit*c.Units()), mostConnectionsUnasked)
	}
	return db
}

// TooFewConnections says what to do when the units may wait for each other's connections; "": they need not.
func (c *Config) TooFewConnections() string {
	units, db := c.Units(), c.RelayDatabase()
	if db.Dialect() != schema.Postgres || db.MaxConnections >= connectionsOfUnit*units {
		return ""
	}
	return fmt.Sprintf("%d shards of destinations use up to %d connections when one process has them all, and it may open %d: "+
		"set database.max_connections to %d, as long as the server has as many to give",
		units, connectionsOfUnit*units, db.MaxConnections, connectionsOfUnit*units)
}

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
		Shards:           d.Shards,
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
