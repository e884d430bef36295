package kafka

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/pillarbox-dev/pillarbox/outbox/inbox"
)

// Codes of what went wrong. They are few, so one may be a metric's label; a handler adds its own with Reject.
const (
	CodeNoEventID     = "NO_EVENT_ID"
	CodeBadEventID    = "BAD_EVENT_ID"
	CodeDifferentBody = "DIFFERENT_BODY" // the event id was seen with another body
	CodeHandler       = "HANDLER"        // Handle returned an error
	CodePanic         = "PANIC"          // Handle panicked
	CodeTimeout       = "TIMEOUT"        // Handle took longer than HandleTimeout
	CodeCommit        = "COMMIT"         // the transaction could not be committed: a deferred constraint, or a swallowed error
	// These are not the message's fault and cost it no attempt.
	CodeTryAgain   = "TRY_AGAIN"   // Handle said so
	CodeInFlight   = "IN_FLIGHT"   // a twin is being handled in another transaction
	CodeDatabase   = "DATABASE"    // the database is away, or its tables are
	CodeDeadLetter = "DEAD_LETTER" // the dead-letter topic does not take it
)

// TryAgain is what Handle returns when the message cannot be handled now, for a reason that is not the message's: everything is
// rolled back, and it is tried again for as long as it takes, after a back-off of at least after. Its partition waits.
func TryAgain(after time.Duration, err error) error {
	return &failure{code: CodeTryAgain, fate: again, after: after, err: err}
}

// Reject is what Handle returns when the message will never be handled: everything is rolled back, and it is dead-lettered
// at once. The code is short, upper case and of a bounded set; it becomes a header and a metric's label.
func Reject(code string, err error) error {
	return &failure{code: code, fate: final, err: err}
}

// fate is what becomes of a message after a failure.
type fate uint8

const (
	charged  fate = iota // it is tried again, MaxAttempts times
	again                // it is tried again; no attempt is counted
	final                // it is dead-lettered
	released             // the partition goes, or the consumer stops: somebody else handles it
)

// failure is why an attempt failed.
type failure struct {
	code  string
	fate  fate
	after time.Duration
	err   error
}

func (f *failure) Unwrap() error { return f.err }

func (f *failure) Error() string {
	if f.err == nil {
		return f.code
	}
	return f.err.Error()
}

// panicked is what a handler's panic becomes.
type panicked struct {
	value any
	stack []byte
}

func (p *panicked) Error() string { return fmt.Sprintf("the handler panicked: %v", p.value) }

// failedInbox: what the inbox does not say about the event is about the database.
func failedInbox(err error) *failure {
	switch {
	case errors.Is(err, inbox.ErrInFlight):
		return &failure{code: CodeInFlight, fate: again, err: err}
	case errors.Is(err, inbox.ErrDifferentBody):
		return &failure{code: CodeDifferentBody, fate: final, err: err}
	}
	return &failure{code: CodeDatabase, fate: again, err: err}
}

// failedHandler judges an error of the handler. A rollback that fails too shows that the connection is gone, which is not
// the message's fault; but a context that ended breaks connections as well, so that is looked at first.
func failedHandler(ctx context.Context, err, rollback error) *failure {
	var said *failure
	var panic *panicked
	switch {
	case errors.As(err, &said):
		return said
	case errors.As(err, &panic):
		return &failure{code: CodePanic, err: err}
	case ctx.Err() != nil:
		return &failure{code: CodeTimeout, err: fmt.Errorf("it took too long: %w", err)}
	case errors.Is(err, inbox.ErrInFlight):
		return &failure{code: CodeInFlight, fate: again, err: err}
	case passing(err), rollback != nil && lostConnection(rollback):
		return &failure{code: CodeDatabase, fate: again, err: err}
	}
	return &failure{code: CodeHandler, err: err}
}

func failedCommit(err error) *failure {
	if passing(err) || lostConnection(err) {
		return &failure{code: CodeDatabase, fate: again, err: err}
	}
	return &failure{code: CodeCommit, err: err}
}

// passing tells of errors that the database gives whatever the statement: it is going down or coming up (57P), it lacks
// connections, memory or disk (53), the connection broke (08), or another transaction was in the way (40).
func passing(err error) bool {
	var state interface{ SQLState() string }
	if errors.As(err, &state) {
		for _, class := range []string{"08", "40", "53", "57P"} {
			if strings.HasPrefix(state.SQLState(), class) {
				return true
			}
		}
	}
	return errors.Is(err, driver.ErrBadConn) || errors.Is(err, sql.ErrConnDone)
}

// lostConnection is asked about errors of rollback and commit, which come from the database alone. pgx marks what it says
// about a closed connection as safe to retry.
func lostConnection(err error) bool {
	var safe interface{ SafeToRetry() bool }
	var network net.Error
	return passing(err) || errors.As(err, &safe) && safe.SafeToRetry() || errors.As(err, &network) ||
		errors.Is(err, pgconn.ErrConnClosed) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed)
}
