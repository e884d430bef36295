package relay

import (
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"
)

// Config is what a Relay is made of. The zero value of a field means its default.
type Config struct {
	// Store is the database side. Required.
	Store Store
	// Owner names this process in leases; it must differ between the processes that share a database. Required.
	Owner string
	// Lease is how long a destination stays with a relay that no longer answers. Default 15 s, at least 1 s.
	Lease time.Duration
	// Drain bounds how long a clean stop waits for what is in flight. Default 10 s.
	Drain time.Duration
	// Destinations are what this relay carries events to. At least one.
	Destinations []DestinationConfig
	// Observer is told what happens. Default: nobody.
	Observer Observer
	// Logger gets what an operator should know: takeovers, breakers, pauses, errors of the store. Attempts go to
	// the Observer alone. Default: slog.Default().
	Logger *slog.Logger
	// Chance draws the jitter. Default: rand.Float64. It is called by one goroutine for each shard of a destination.
	Chance func() float64
}

// DestinationConfig is one destination and the rules for its deliveries.
type DestinationConfig struct {
	// Name is the key of the cursor and of every delivery row. Required: at most 100 characters of a–z, A–Z, 0–9, - _ and '.'.
	Name string
	// Destination delivers. Required.
	Destination Destination
	// Topics are the patterns of what is wanted; none: everything.
	Topics Topics
	// Contract, if set, judges every event before it is delivered; nil: the event keeps its contract. A Reject is quarantined at
	// once, without an attempt. It is called by several goroutines.
	Contract func(*Event) *Outcome
	// Shards divides the destination by its keys into so many parts, each with a lease of its own, so that several relays work on
	// it at once. Everything below is for each of them. Default 1, at most MaxShards; it needs the ledger, and PostgreSQL. For a
	// destination that is not new, the number in the database has to be changed as well: pillarbox reshard.
	Shards int
	// StartAtEnd lets a new destination skip what the log already holds.
	StartAtEnd bool
	// NoLedger leaves out the row of a delivery that succeeded at once. After a crash, what was settled but stands above
	// the cursor is then sent again. A clean stop writes rows for that.
	NoLedger bool

	// Timeout bounds one call of Deliver. Default 10 s; it must not exceed two thirds of the lease.
	Timeout time.Duration
	// Concurrency is how many calls of Deliver are under way at once. Default 32, for a Batcher 4. One of several endpoints
	// takes a quarter of it at most, or as many as open its breaker, if it has no limit of its own (Limiter). What has been
	// under way to one of several endpoints for more than a second does not count, up to as many again.
	Concurrency int
	// MaxInFlight bounds the deliveries that are held in memory, being read ahead, waiting or under way.
	// Default 8 batches, at least 4,096.
	MaxInFlight int
	// MaxInFlightBytes bounds the same in bytes (Event.Size). Default 64 MiB.
	MaxInFlightBytes int
	// MaxHeldLanes bounds the lanes that wait behind a failed delivery. When it is reached nothing new is read until
	// one goes on. Default 100,000, about 20 MB.
	MaxHeldLanes int

	// Retry says when a failed delivery is tried again.
	Retry RetryPolicy
	// OnQuarantine says what happens to the rest of a lane. Default Skip.
	OnQuarantine OnQuarantine
	// ChargeOutages makes Unavailable cost an attempt, like Retry.
	ChargeOutages bool
	// CodeOnly keeps error messages out of the database: only the code is stored.
	CodeOnly bool
	// Breaker and Guard protect an endpoint and the events meant for it.
	Breaker BreakerConfig
	Guard   GuardConfig
}

// OnQuarantine says what happens to the later events of a lane when one is quarantined.
type OnQuarantine uint8

const (
	// Skip lets the lane go on.
	Skip OnQuarantine = iota
	// Hold keeps the lane waiting until an operator retries or discards the quarantined delivery. A batch then takes no
	// more than one delivery of each lane.
	Hold
)

// RetryPolicy says when a delivery that failed is tried again.
type RetryPolicy struct {
	// Delays, when given, are used in turn, the last one for all further attempts; Base, Factor and Max are
	// then ignored.
	Delays []time.Duration
	// Base is the first delay. Default 1 s.
	Base time.Duration
	// Factor multiplies the delay with each attempt: Base × Factor^(attempt-1). Default 2.
	Factor float64
	// Max caps the delay. Default 1 h.
	Max time.Duration
	// Jitter takes up to this part of the delay away, at random. Default 0.1; negative: none.
	Jitter float64
	// MaxAttempts ends in quarantine with code EXHAUSTED. Default 10.
	MaxAttempts int
}

// Limits that the start-up check holds every configuration to.
const (
	MinLease       = time.Second
	MaxLease       = time.Hour
	MaxConcurrency = 10_000
	MaxNameLength  = 100
	// MaxErrorMessage is how many bytes of Outcome.Message are kept.
	MaxErrorMessage = 2000
	// MaxErrorCode is how many bytes of Outcome.Code are kept.
	MaxErrorCode = 64
	// MaxKeyLength bounds an event's key and the name of its endpoint, in bytes. Both stand in an index of the ledger, with the
	// destination's name, and PostgreSQL takes 2,704 bytes there: an event with a longer one is quarantined with CodeKeyTooLong.
	MaxKeyLength = 1000
)

// withDefaults returns the configuration with its defaults filled in.
func (c Config) withDefaults() Config {
	setDefault(&c.Lease, 15*time.Second)
	setDefault(&c.Drain, 10*time.Second)
	if c.Observer == nil {
		c.Observer = Unobserved{}
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	if c.Chance == nil {
		c.Chance = rand.Float64
	}
	destinations := make([]DestinationConfig, len(c.Destinations))
	for i, d := range c.Destinations {
		destinations[i] = d.withDefaults()
	}
	c.Destinations = destinations
	return c
}

func (d DestinationConfig) withDefaults() DestinationConfig {
	setDefault(&d.Shards, 1)
	setDefault(&d.Timeout, 10*time.Second)
	if d.maxBatch() > 1 {
		setDefault(&d.Concurrency, 4)
	} else {
		setDefault(&d.Concurrency, 32)
	}
	setDefault(&d.MaxInFlight, max(4096, 8*d.maxBatch()))
	setDefault(&d.MaxInFlightBytes, 64<<20)
	setDefault(&d.MaxHeldLanes, 100_000)
	setDefault(&d.Retry.Base, time.Second)
	setDefault(&d.Retry.Factor, 2)
	setDefault(&d.Retry.Max, time.Hour)
	setDefault(&d.Retry.Jitter, 0.1)
	setDefault(&d.Retry.MaxAttempts, 10)
	d.Breaker = d.Breaker.withDefaults()
	d.Guard = d.Guard.withDefaults()
	return d
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

func (d DestinationConfig) maxBatch() int {
	if b, ok := d.Destination.(Batcher); ok {
		return max(1, b.MaxBatch())
	}
	return 1
}

// validate returns all problems at once. It is called with the defaults filled in.
func (c Config) validate() error {
	var problems []error
	bad := func(format string, args ...any) { problems = append(problems, fmt.Errorf(format, args...)) }
	if c.Store == nil {
		bad("relay: Store is missing: open one with store/postgres or store/sqlite")
	}
	if c.Owner == "" {
		bad("relay: Owner is empty: give each process a name of its own, such as host and process id")
	}
	if c.Lease < MinLease || c.Lease > MaxLease {
		bad("relay: lease %v is outside %v to %v", c.Lease, MinLease, MaxLease)
	}
	if c.Drain < 0 {
		bad("relay: drain %v is negative", c.Drain)
	}
	if len(c.Destinations) == 0 {
		bad("relay: there is no destination: nothing would ever be delivered")
	}
	seen := map[string]bool{}
	for _, d := range c.Destinations {
		if seen[d.Name] {
			bad("destination %q is configured twice", d.Name)
		}
		seen[d.Name] = true
		for _, err := range d.problems(c.Lease) {
			bad("destination %q: %w", d.Name, err)
		}
	}
	return errors.Join(problems...)
}

func (d DestinationConfig) problems(lease time.Duration) (problems []error) {
	bad := func(format string, args ...any) { problems = append(problems, fmt.Errorf(format, args...)) }
	if !validName(d.Name) {
		bad("name must have 1 to %d characters of a-z, A-Z, 0-9, '-', '_' and '.'", MaxNameLength)
	}
	if d.Destination == nil {
		bad("Destination is missing")
	}
	if d.Shards < 1 || d.Shards > MaxShards {
		bad("shards %d is outside 1 to %d", d.Shards, MaxShards)
	}
	if d.Shards > 1 && d.NoLedger {
		bad("shards %d need the ledger: without it nobody could tell what lies between the positions of two shards from what "+
			"is pending. Use one shard, or keep the ledger", d.Shards)
	}
	if d.Timeout < time.Millisecond {
		bad("timeout %v is too short: use at least 1ms", d.Timeout)
	}
	if fits := lease * 2 / 3; d.Timeout > fits {
		bad("timeout %v does not fit in the lease of %v: a delivery may take two thirds of it. "+
			"Set the timeout to at most %v, or the lease to at least %v", d.Timeout, lease, fits.Truncate(time.Millisecond), d.Timeout*3/2)
	}
	if d.Concurrency < 1 || d.Concurrency > MaxConcurrency {
		bad("concurrency %d is outside 1 to %d", d.Concurrency, MaxConcurrency)
	}
	if d.MaxInFlight < d.maxBatch() {
		bad("max_in_flight %d is less than one batch of %d", d.MaxInFlight, d.maxBatch())
	}
	if d.MaxInFlightBytes < 1<<20 {
		bad("max_in_flight_bytes %d is less than 1 MiB", d.MaxInFlightBytes)
	}
	if d.MaxHeldLanes < 1 {
		bad("max_held_lanes %d is less than 1", d.MaxHeldLanes)
	}
	if d.OnQuarantine > Hold {
		bad("on_quarantine must be skip or hold")
	}
	problems = append(problems, d.Retry.problems()...)
	problems = append(problems, d.Breaker.problems()...)
	return append(problems, d.Guard.problems()...)
}

func (r RetryPolicy) problems() (problems []error) {
	bad := func(format string, args ...any) { problems = append(problems, fmt.Errorf(format, args...)) }
	for i, delay := range r.Delays {
		if delay <= 0 {
			bad("retry.delays[%d] is %v: delays must be positive", i, delay)
		}
	}
	if r.Base <= 0 {
		bad("retry.base %v must be positive", r.Base)
	}
	if r.Factor < 1 || r.Factor > 100 {
		bad("retry.factor %v is outside 1 to 100", r.Factor)
	}
	if r.Max < r.Base {
		bad("retry.max %v is less than retry.base %v", r.Max, r.Base)
	}
	if r.Jitter > 1 {
		bad("retry.jitter %v is above 1", r.Jitter)
	}
	if r.MaxAttempts < 1 {
		bad("retry.max_attempts %d is less than 1", r.MaxAttempts)
	}
	return problems
}

func validName(name string) bool {
	for _, c := range []byte(name) {
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '-', c == '_', c == '.':
		default:
			return false
		}
	}
	return name != "" && len(name) <= MaxNameLength
}
