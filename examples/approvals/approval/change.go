package approval

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
)

// change is one step of an approved approval, with its event.
func (s *Service) change(
	ctx context.Context, verb, id, class string, act Act, query string, args ...any,
) (a Approval, err error) {
	err = s.transact(ctx, verb, id, act, func(tx *sql.Tx) error {
		if a, err = s.step(ctx, tx, id, Approved, query, args...); err != nil {
			return err
		}
		_, err = s.tell(ctx, tx, a, class, act)
		return err
	})
	if err != nil {
		return Approval{}, err
	}
	return a, nil
}

// transact runs f in a transaction. Whatever f returns an error for never happened.
func (s *Service) transact(ctx context.Context, verb, id string, act Act, f func(*sql.Tx) error) error {
	failed := func(err error) error { return fmt.Errorf("%s approval %s: %w", verb, id, err) }
	if err := act.check(); err != nil {
		return failed(err)
	}
	tx, err := s.DB.BeginTx(ctx, nil)
	if err != nil {
		return failed(err)
	}
	defer tx.Rollback() // after a commit it does nothing
	if err := f(tx); err != nil {
		return failed(err)
	}
	if err := tx.Commit(); err != nil {
		return failed(err)
	}
	s.Committed()
	return nil
}

// step runs the update of one transition. Its condition is the whole of the concurrency: of two that come at once the second
// waits for the first, and finds that the condition holds no more.
func (s *Service) step(ctx context.Context, tx *sql.Tx, id string, need State, query string, args ...any) (Approval, error) {
	a, err := scan(tx.QueryRowContext(ctx, query, args...))
	if !errors.Is(err, sql.ErrNoRows) {
		return a, err
	}
	if a, err = s.show(ctx, tx, id); err != nil {
		return Approval{}, err
	}
	if a.State == need { // the step had one more condition
		return Approval{}, fmt.Errorf("its successor: %w", ErrNotFound)
	}
	return Approval{}, &StateError{a, need}
}

// tell writes the line of the history and the event, and returns the event's id.
func (s *Service) tell(ctx context.Context, tx *sql.Tx, a Approval, class string, act Act) (id string, err error) {
	id = s.NewID()
	if _, err := tx.ExecContext(ctx, s.sql.record, a.ID, a.Version, class, id, act.Actor); err != nil {
		return "", fmt.Errorf("write the history: %w", err)
	}
	event, err := eventOf(a, class, id, act)
	if err != nil {
		return "", err
	}
	results, err := s.Events.Enqueue(ctx, tx, event)
	if err != nil {
		return "", err
	}
	if results[0].Duplicate {
		return "", fmt.Errorf("the event id %s was given twice: nothing would be told of this change", id)
	}
	return id, nil
}

// querier is a pool or a transaction.
type querier interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

func (s *Service) show(ctx context.Context, q querier, id string) (Approval, error) {
	a, err := scan(q.QueryRowContext(ctx, s.sql.show, id))
	if errors.Is(err, sql.ErrNoRows) {
		err = ErrNotFound
	}
	return a, err
}

// scan reads the columns that all statements return.
func scan(row *sql.Row) (a Approval, err error) {
	err = row.Scan(&a.ID, &a.Tenant, &a.Scope, &a.BindingDigest, &a.State, &a.Threshold, &a.Votes, &a.RequestDigest, &a.SupersededBy,
		&a.Version, &a.ObservedAt)
	return a, err
}
