package ops

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
)

const ledgerHint = "an event without a row was passed and not delivered: deliver it with 'pillarbox replay', if the " +
	"destination was to have it then; a row without its event lost it to somebody who deleted from outbox_event: restore the " +
	"event, or discard the delivery"

// ledgers compares, for each destination, the log with the ledger and the ledger with the log.
//
// Looked at is what lies between the destination's first row and its position: one that began at the end of the log has no rows
// for what was there before.
func (r *reconciliation) ledgers(ctx context.Context) (Finding, error) {
	f := Finding{Rows: []map[string]any{}, Hint: ledgerHint}
	var problems []error
	for _, destination := range r.config.Ledgers {
		c := r.cursors[destination]
		if c == nil || c.first == 0 {
			continue // nothing was delivered yet
		}
		err := r.compare(ctx, "log/"+destination, c, r.lookAtLog(destination, c), &f)
		if err == nil {
			err = r.compare(ctx, "ledger/"+destination, c, r.lookAtLedger(destination), &f)
		}
		if err != nil {
			problems = append(problems, fmt.Errorf("%s: %w", destination, err))
		}
	}
	return f, errors.Join(problems...)
}

// compare makes one comparison from where it stands up to the position of a destination.
func (r *reconciliation) compare(ctx context.Context, name string, c *reconcileCursor, look look, f *Finding) error {
	from, known := r.config.Progress[name]
	if !known {
		from = comparedTo{Through: max(c.first, r.first) - 1}
	}
	s := scan{look: look, limit: int64(r.config.Limit), gaps: c.gaps, keep: r.config.Progress != nil, finding: f}
	reached, err := s.run(ctx, from, c.position)
	if err != nil {
		return err
	}
	if s.keep {
		r.config.Progress[name] = reached
	}
	if s.cut && f.Count == 0 {
		return fmt.Errorf("%s deliveries are not settled, and no more are watched: it goes on when some of them are",
			thousands(reconcileOpen))
	}
	f.AtLeast = f.AtLeast || s.cut
	return nil
}

// lookAtLog finds events that the destination wants and has neither settled nor parked.
func (r *reconciliation) lookAtLog(destination string, c *reconcileCursor) look {
	return func(ctx context.Context, after, to int64) (seen []sighting, through int64, err error) {
		args := []any{destination, after, to, reconcileChunk, c.topics}
		err = r.read(ctx, r.queries.log, args, func(scan func(...any) error) error {
			var seq, looked int64
			var id, topic, event string
			if err := scan(&seq, &id, &topic, &event, &looked); err != nil {
				return err
			}
			switch {
			case id == "":
				through = reached(seq, looked, to)
			case !c.gaps.has(seq):
				seen = append(seen, sighting{seq, map[string]any{
					"problem": "no row in the ledger", "destination": destination, "seq": seq, "event_id": id, "topic_name": topic,
					"event_type": event,
				}})
			}
			return nil
		})
		return seen, through, err
	}
}

// lookAtLedger finds rows whose event is gone.
func (r *reconciliation) lookAtLedger(destination string) look {
	return func(ctx context.Context, after, to int64) (seen []sighting, through int64, err error) {
		args := []any{destination, after, to, reconcileChunk}
		err = r.read(ctx, r.queries.ledger, args, func(scan func(...any) error) error {
			var seq, looked int64
			var status string
			if err := scan(&seq, &status, &looked); err != nil {
				return err
			}
			if status == "" {
				through = reached(seq, looked, to)
				return nil
			}
			seen = append(seen, sighting{seq, map[string]any{
				"problem": "its event is gone", "destination": destination, "seq": seq, "status": status,
			}})
			return nil
		})
		return seen, through, err
	}
}

// read reads one chunk, through the indexes: see plan.sql.
func (r *reconciliation) read(ctx context.Context, query string, args []any, take func(scan func(...any) error) error) error {
	tx, err := r.db.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if plan := r.Ops.queries.plan; plan != "" {
		if _, err := tx.ExecContext(ctx, plan); err != nil {
			return err
		}
	}
	return each(ctx, tx, query, args, take)
}

// reached is how far a chunk has come: to the end when it was not full.
func reached(last, looked, to int64) int64 {
	if looked < reconcileChunk {
		return to
	}
	return last
}
