package relay

import "time"

// Kind says what came back from an attempt.
type Kind uint8

// The zero value is Retry: what is forgotten is tried again, never lost.
const (
	// Retry is about this event: it is charged an attempt and tried again after a back-off.
	Retry Kind = iota
	// Published: the destination has it.
	Published
	// Reject is about this event, and final: it is quarantined.
	Reject
	// Unavailable is about the destination or endpoint, not the event: no attempt is charged.
	Unavailable
	// Released: the attempt was broken off by a shutdown, or not made because one before it in the batch failed. It is no
	// failure and charges nothing.
	Released
)

func (k Kind) String() string {
	switch k {
	case Retry:
		return "retry"
	case Published:
		return "published"
	case Reject:
		return "reject"
	case Unavailable:
		return "unavailable"
	case Released:
		return "released"
	}
	return "unknown"
}

// Outcome is what came back from one attempt.
type Outcome struct {
	Kind Kind
	// Code is short, upper case and of a bounded set (HTTP_422, TIMEOUT): it becomes a metric label and
	// last_error_code. Empty only for Published and Released.
	Code string
	// Message is for a person: at most 2,000 characters are kept. Never a secret.
	Message string
	// Receipt is what the destination gave for it: an HTTP status, a Kafka partition@offset.
	Receipt string
	// After is the least time before the next attempt (Retry-After); zero: the back-off decides.
	After time.Duration
	// Trouble makes a Retry count against the endpoint's breaker as well: a 503 says something about
	// the endpoint too. Unavailable always counts.
	Trouble bool
	// Pause, with Unavailable or Reject, says that waiting will not mend it (moved, gone, a bad
	// certificate, no credential): the endpoint is paused and probed only every few minutes.
	Pause bool
	// Uncertain says that the receiver may have handled the event although an answer did not arrive. With Published it says so of a
	// try before the one that was answered.
	Uncertain bool
}
