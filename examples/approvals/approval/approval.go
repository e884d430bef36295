package approval

import (
	"errors"
	"fmt"
	"regexp"
	"time"
	"unicode/utf8"
)

// State is where an approval stands.
type State string

const (
	Pending    State = "PENDING"
	Approved   State = "APPROVED"
	Consumed   State = "CONSUMED"
	Superseded State = "SUPERSEDED"
	Revoked    State = "REVOKED"
	Expired    State = "EXPIRED" // observed, not stored
)

// Approval is an approval as it was when it was looked at.
type Approval struct {
	ID, Tenant, Scope string
	// BindingDigest is that of what is approved.
	BindingDigest    string
	State            State
	Threshold, Votes int
	// RequestDigest is that of the request which used it, SupersededBy the approval that came in its place.
	RequestDigest, SupersededBy string
	// Version counts its events.
	Version int64
	// ObservedAt is the database's clock, as RFC 3339 has it.
	ObservedAt string
}

// Request asks for an approval.
type Request struct {
	// ID is the caller's: 1 to 100 of A–Z, a–z, 0–9 and . _ -
	ID string
	// Tenant and Scope say whose it is, and what for.
	Tenant, Scope string
	// BindingDigest binds it to what is to be done: sha256: and 64 lower-case hex digits.
	BindingDigest string
	// Threshold is how many have to agree.
	Threshold int
	// Lifetime is how long it can be used, counted from now.
	Lifetime time.Duration
}

var (
	validID     = regexp.MustCompile(`^[A-Za-z0-9._-]{1,100}$`)
	validDigest = regexp.MustCompile(`^sha256:[0-9a-f]{64}$`)
)

const (
	maxThreshold = 100
	maxLifetime  = 365 * 24 * time.Hour
	digestHint   = "write sha256: and 64 lower-case hex digits"
)

// check returns all problems at once.
func (r Request) check() error {
	var problems []error
	bad := func(wrong bool, format string, args ...any) {
		if wrong {
			problems = append(problems, fmt.Errorf(format, args...))
		}
	}
	bad(!validID.MatchString(r.ID), "the id is not 1 to 100 of A-Z, a-z, 0-9 and . _ -: choose another")
	bad(r.Tenant == "" || len(r.Tenant) > 200, "the tenant has %d bytes: name one, in at most 200", len(r.Tenant))
	bad(r.Scope == "" || len(r.Scope) > 200, "the scope has %d bytes: name one, in at most 200", len(r.Scope))
	bad(!validDigest.MatchString(r.BindingDigest), "the binding digest is none: "+digestHint)
	bad(r.Threshold < 1 || r.Threshold > maxThreshold, "the threshold is %d: choose from 1 to %d", r.Threshold, maxThreshold)
	bad(r.Lifetime < time.Second || r.Lifetime > maxLifetime, "the lifetime is %v: choose from 1s to %v", r.Lifetime, maxLifetime)
	return errors.Join(problems...)
}

// Act says who does something, why, and as part of what.
type Act struct {
	// Actor is required: "user:ann".
	Actor string
	// Reason is free text of at most 500 characters. It goes to the audit store: no secrets.
	Reason string
	// CorrelationID goes along with the event. Default: the event's id.
	CorrelationID string
}

func (a Act) check() error {
	var problems []error
	if a.Actor == "" || len(a.Actor) > 200 {
		problems = append(problems, fmt.Errorf("the actor has %d bytes: name who does it, in at most 200", len(a.Actor)))
	}
	if n := utf8.RuneCountInString(a.Reason); n > 500 {
		problems = append(problems, fmt.Errorf("the reason has %d characters: shorten it to 500", n))
	}
	return errors.Join(problems...)
}

// Use is the answer to a request that may do what was approved. The same request gets the same answer again.
type Use struct {
	ApprovalID, RequestDigest string
	// EventID is that of the event which told the audit store.
	EventID string
}

var (
	// ErrNotFound says that there is no such approval.
	ErrNotFound = errors.New("there is no such approval: check its id")
	// ErrExists says that the id of a Request is taken.
	ErrExists = errors.New("there is an approval with this id already: choose another id")
	// ErrUsed says that another request was first.
	ErrUsed = errors.New("another request has used it: ask for a new approval")
)

// StateError says that an approval stands where what was asked for cannot be done.
type StateError struct {
	Approval Approval
	// Need is the state that it takes.
	Need State
}

func (e *StateError) Error() string {
	return fmt.Sprintf("the approval is %s, and it would have to be %s: ask for a new one", e.Approval.State, e.Need)
}
