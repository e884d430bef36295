package ops

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/pillarbox-dev/pillarbox/relay"
)

// Retry sets a delivery that is FAILED or QUARANTINED going again, from its first attempt; a running relay takes it within a
// second. It returns the delivery as it is now.
//
// The error is a *ConflictError when it has changed since the operator looked, a *RefusedError when a retry makes no sense for
// it, and ErrNotFound when there is no such delivery.
func (o *Ops) Retry(ctx context.Context, t Target, a Action) (Delivery, error) {
	return o.act(ctx, "retry", t, a, func(ctx context.Context, s *act) error {
		if err := s.retryable(); err != nil {
			return err
		}
		if err := s.change(ctx, s.texts.retry); err != nil {
			return err
		}
		return s.record(ctx, a, stateOf(s.was), deliveryState{Status: relay.StatusPending})
	})
}

// Discard gives a delivery up that is FAILED or QUARANTINED, or PENDING with a row in the ledger. What waits behind it goes on.
// The errors are those of Retry.
func (o *Ops) Discard(ctx context.Context, t Target, a Action) (Delivery, error) {
	return o.act(ctx, "discard", t, a, func(ctx context.Context, s *act) error {
		switch s.was.Status {
		case relay.StatusFailed, relay.StatusQuarantined, relay.StatusPending:
		case relay.StatusDiscarded:
			return &RefusedError{Why: "it is discarded already"}
		default:
			return s.refusal()
		}
		if err := s.change(ctx, s.texts.discard); err != nil {
			return err
		}
		after := stateOf(s.was)
		after.Status = relay.StatusDiscarded
		return s.record(ctx, a, stateOf(s.was), after)
	})
}

// act is what is done to one delivery, in one transaction that holds the locks on the event and the delivery.
type act struct {
	*Ops
	tx     *sql.Tx
	texts  actTexts
	action string
	was    Delivery
}

type actTexts struct {
	lockEvent, lockDelivery, deliveries, event, retry, discard, repair string
}

func (o *Ops) actTexts() (t actTexts, err error) {
	texts := map[string]*string{
		"deliveries": &t.deliveries, "event": &t.event, "retry": &t.retry, "discard": &t.discard, "repair": &t.repair,
	}
	if o.isPostgres() {
		texts["lock_event"], texts["lock_delivery"] = &t.lockEvent, &t.lockDelivery
	}
	return t, fill(o.dialect, o.schemaName, texts)
}

// act does something to a delivery if it is what the operator has seen.
//
//	lock the event, then the delivery → look, on a new snapshot → the version that was seen? → change, record → commit
//
// Of two operators the second one waits for the lock, and then sees what the first one has made of it. A relay that has taken the
// delivery meanwhile has changed its status; one that comes later waits in turn, and finds another status than the one that it
// wanted to take.
func (o *Ops) act(ctx context.Context, action string, t Target, a Action,
	do func(context.Context, *act) error) (Delivery, error) {
	failed := func(err error) (Delivery, error) {
		return Delivery{}, fmt.Errorf("%s event %d to %s: %w", action, t.Seq, t.Destination, err)
	}
	if err := refuse(t.problems(a)); err != nil {
		return failed(err)
	}
	texts, err := o.actTexts()
	if err != nil {
		return failed(err)
	}
	tx, err := o.db.BeginTx(ctx, o.readCommitted())
	if err != nil {
		return failed(err)
	}
	defer tx.Rollback() // after a commit it does nothing
	if o.queries.plan != "" {
		if _, err := tx.ExecContext(ctx, o.queries.plan); err != nil {
			return failed(err)
		}
	}
	s := &act{Ops: o, tx: tx, texts: texts, action: action}
	if err := s.lock(ctx, t); err != nil {
		return failed(err)
	}
	if s.was, err = s.now(ctx, t); err != nil {
		return failed(err)
	}
	if s.was.Version != t.Version {
		return failed(&ConflictError{Now: s.was})
	}
	if err := do(ctx, s); err != nil {
		return failed(err)
	}
	is, err := s.now(ctx, t)
	if err != nil {
		return failed(err)
	}
	if err := tx.Commit(); err != nil {
		return failed(err)
	}
	return is, nil
}

func (t Target) problems(a Action) (problems []error) {
	if err := a.check(false); err != nil {
		problems = append(problems, err)
	}
	if t.Destination == "" || t.Seq <= 0 {
		problems = append(problems, errors.New("no delivery is named: give the destination, and the number of the event"))
	}
	if t.Version == "" {
		problems = append(problems, errors.New("the version is missing: look at the delivery first, and give the version that "+
			"you saw. What has none waits in the log: pause the destination to hold it back"))
	}
	return problems
}

// lock takes the locks: in PostgreSQL on the two rows. A transaction of SQLite that may write has the one lock that there is.
func (s *act) lock(ctx context.Context, t Target) error {
	if s.texts.lockEvent == "" {
		return nil
	}
	if _, err := s.tx.ExecContext(ctx, s.texts.lockEvent, t.Seq); err != nil {
		return fmt.Errorf("lock the event: %w", err)
	}
	if _, err := s.tx.ExecContext(ctx, s.texts.lockDelivery, t.Destination, t.Seq); err != nil {
		return fmt.Errorf("lock the delivery: %w", err)
	}
	return nil
}

// now reads the delivery.
func (s *act) now(ctx context.Context, t Target) (Delivery, error) {
	found, err := lookAtDeliveries(ctx, s.tx, s.texts.deliveries, t.Destination, []int64{t.Seq}, looking{rows: "row", limit: 1})
	if err != nil {
		return Delivery{}, err
	}
	if len(found) == 0 {
		return Delivery{}, ErrNotFound
	}
	return found[0], nil
}

// retryable tells why the delivery cannot be set going again.
func (s *act) retryable() error {
	switch {
	case s.was.Status == relay.StatusPending:
		return &RefusedError{Why: "it is PENDING: it is delivered as soon as its lane and its destination let it"}
	case s.was.Status != relay.StatusFailed && s.was.Status != relay.StatusQuarantined:
		return s.refusal()
	case s.was.EventID == "":
		return &RefusedError{Why: "somebody has deleted the event from the log: there is nothing to deliver. Discard it"}
	}
	return nil
}

// refusal is for what stands nowhere in the way.
func (s *act) refusal() error {
	switch s.was.Status {
	case relay.StatusPublishing:
		return &RefusedError{Why: "it is under way right now: wait until that has ended, or pause the destination"}
	case relay.StatusPublished:
		return &RefusedError{Why: "it is PUBLISHED: to send it once more, replay it"}
	case relay.StatusDiscarded:
		return &RefusedError{Why: "it is DISCARDED: to deliver it all the same, replay it"}
	}
	return &RefusedError{Why: "it is " + string(s.was.Status)}
}

func (s *act) change(ctx context.Context, query string) error {
	if _, err := s.tx.ExecContext(ctx, query, s.was.Destination, s.was.Seq); err != nil {
		return fmt.Errorf("change the delivery: %w", err)
	}
	return nil
}

func (s *act) record(ctx context.Context, a Action, before, after any) error {
	return s.recordEvent(ctx, s.tx, s.action, s.was, a, before, after)
}

// deliveryState is what the operators' log says about a delivery before and after.
type deliveryState struct {
	Status       relay.Status `json:"status"`
	Attempts     int          `json:"attempt_count"`
	ErrorCode    string       `json:"last_error_code,omitempty"`
	ErrorMessage string       `json:"last_error_message,omitempty"`
}

func stateOf(d Delivery) deliveryState {
	return deliveryState{d.Status, d.Attempts, d.ErrorCode, d.ErrorMessage}
}

// jsonText writes JSON as it is kept in the operators' log: a payload in it loses spaces and nothing else.
func jsonText(value any) (string, error) {
	var b strings.Builder
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	err := encoder.Encode(value)
	return strings.TrimSpace(b.String()), err
}
