package inbox

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/pillarbox-dev/pillarbox/outbox"
	"github.com/pillarbox-dev/pillarbox/outbox/internal/txn"
)

// Verdict says what to do with an event of an aggregate.
type Verdict uint8

const (
	// Apply: it is the next version, or the first one. It is recorded, in the transaction.
	Apply Verdict = iota + 1
	// Stale: this version, or a later one, was applied before. Do nothing, and commit: it is handled.
	Stale
	// Gap: an earlier version has not been applied yet. Nothing is recorded. One of three:
	//
	//   - Events that say what changed (deltas) need the missing one: return an error, so that the transaction and its inbox
	//     record are rolled back and the event is delivered again later, when the missing one was applied.
	//   - Events that carry the whole state do not: call Jump and apply. The missing one is Stale when it comes.
	//   - When the missing one will not come (it was discarded, or the consumer is new and the log does not reach back): fetch the
	//     aggregate's state from its service, apply that, and Jump to the version that it has.
	//
	// A gap is no sign of a loss where the consumer does not get every version: because it asked for some topics only, or
	// because not every change has an event. There, use Jump alone.
	Gap
)

// String returns the verdict's name.
func (v Verdict) String() string {
	switch v {
	case Apply:
		return "apply"
	case Stale:
		return "stale"
	case Gap:
		return "gap"
	}
	return fmt.Sprintf("Verdict(%d)", uint8(v))
}

// Guard compares an event's version with the one that consumer applied last to the aggregate, and records it when it is the next
// one. Versions count from 1, one for each event: where one change has several events of the same version, give each kind
// a consumer's name of its own. Call it in the handler's transaction, after First. While it is open, other transactions wait for
// it with the events of the same aggregate, for Options.Wait at most, and get ErrInFlight.
func (i *Inbox) Guard(
	ctx context.Context, tx outbox.Tx, consumer, aggregateType, aggregateID string, version int64,
) (Verdict, error) {
	return i.move(ctx, tx, consumer, aggregateType, aggregateID, version, false)
}

// Jump is Guard without gaps: it records any later version than the last one, and returns Apply or Stale.
func (i *Inbox) Jump(
	ctx context.Context, tx outbox.Tx, consumer, aggregateType, aggregateID string, version int64,
) (Verdict, error) {
	return i.move(ctx, tx, consumer, aggregateType, aggregateID, version, true)
}

func (i *Inbox) move(
	ctx context.Context, tx outbox.Tx, consumer, aggregateType, aggregateID string, version int64, jump bool,
) (Verdict, error) {
	problems := []error{checkText("consumer", consumer), checkText("aggregate id", aggregateID)}
	if aggregateType != "" {
		problems = append(problems, checkText("aggregate type", aggregateType))
	}
	if version < 1 {
		problems = append(problems, fmt.Errorf("version is %d: versions count from 1, and an event with 0 has none", version))
	}
	if err := errors.Join(problems...); err != nil {
		return 0, fmt.Errorf("version guard: %w", err)
	}
	t, err := txn.Of(tx)
	if err != nil {
		return 0, fmt.Errorf("version guard: %w", err)
	}
	args := []any{consumer, aggregateType, aggregateID, version, jump}
	if i.dialect == outbox.Postgres {
		args = append(args, i.wait)
	}
	said, err := txn.Texts(ctx, t, i.guard, args...)
	if err == nil && len(said) == 0 { // SQLite, nothing written
		said, err = txn.Texts(ctx, t, sqliteVerdict, args[:4]...)
	}
	if err == nil && len(said) == 1 && said[0] == isInFlight {
		err = ErrInFlight
	}
	if err != nil {
		return 0, fmt.Errorf("version guard of %s: %w", consumer, i.explain(err))
	}
	for _, v := range []Verdict{Apply, Stale, Gap} {
		if len(said) == 1 && strings.EqualFold(said[0], v.String()) {
			return v, nil
		}
	}
	return 0, fmt.Errorf("version guard of %s: the database answered %q: do the migrations fit this program?", consumer, said)
}
