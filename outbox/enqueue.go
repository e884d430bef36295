package outbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/pillarbox-dev/pillarbox/outbox/internal/txn"
)

// Enqueue writes events to the log, in the caller's transaction, and returns one result for each, in the same order. It
// neither commits nor rolls back. Call it after the change that the events tell of: see Order in the package's documentation.
//
// Nothing is written when an event is not valid: an *InvalidError lists every problem of every event, and the transaction is as
// good as before. Any other error comes from the database; PostgreSQL has then aborted the transaction, and the caller rolls it
// back, or goes back to a savepoint that it set before the call.
//
// Up to 16 events are one statement and one round trip; more are split into statements of 16, 32, 64, 128, 256 and 512 events
// with at most 16 MiB of payload each. All are in the same transaction, so they become visible together.
func (o *Outbox) Enqueue(ctx context.Context, tx Tx, events ...Event) ([]Result, error) {
	if err := o.check(events); err != nil {
		return nil, err
	}
	t, err := txn.Of(tx)
	if err != nil {
		return nil, fmt.Errorf("enqueue: %w", err)
	}
	results := make([]Result, len(events))
	for i := range events {
		if results[i].ID = events[i].ID; results[i].ID == "" {
			if results[i].ID, err = o.ids.next(); err != nil {
				return nil, fmt.Errorf("enqueue: make an event id: %w", err)
			}
		}
	}
	trace := o.traceHeaders(ctx)
	for from := 0; from < len(events); {
		to := from + rowsFor(affordable(events[from:]))
		if err := o.insert(ctx, t, events[from:to], results[from:to], trace); err != nil {
			return nil, fmt.Errorf("enqueue %s: %w%s", numbered(from, to), err, hint(err))
		}
		from = to
	}
	return results, nil
}

// maxStatementBytes bounds the payload of one statement: it is held several times over on its way, and PostgreSQL takes a message
// of 1 GiB at most. One event is always taken.
const maxStatementBytes = 16 << 20

// affordable returns how many of the next events fit in one statement.
func affordable(events []Event) int {
	bytes := 0
	for i := range events {
		bytes += len(events[i].Payload) + len(events[i].PayloadBytes)
		if i > 0 && bytes > maxStatementBytes {
			return i
		}
		if i == maxRows {
			return i
		}
	}
	return len(events)
}

// insert writes events with one statement and marks what was there already.
func (o *Outbox) insert(ctx context.Context, t txn.Tx, events []Event, results []Result, trace []header) error {
	wide := false
	for i := range events {
		e := &events[i]
		wide = wide || e.PayloadBytes != nil || e.DedupKey != "" || !e.AvailableAt.IsZero()
	}
	query, parameters := o.statements.narrow[len(events)], narrowParameters
	if wide {
		query, parameters = o.statements.wide[len(events)], wideParameters
	}
	args := make([]any, 0, len(events)*parameters)
	for i := range events {
		args = o.appendNarrow(args, &events[i], results[i].ID, trace)
		if wide {
			args = o.appendWide(args, &events[i])
		}
	}
	duplicates, err := write(ctx, t, query, args, results)
	if err != nil || !duplicates || !wide || o.dialect == SQLite {
		return err
	}
	return o.verify(ctx, t, events, results)
}

// write runs the INSERT and tells whether it found duplicates.
func write(ctx context.Context, t txn.Tx, query string, args []any, results []Result) (bool, error) {
	if len(results) == 1 {
		written, err := t.InsertOne(ctx, query, args)
		results[0].Duplicate = !written
		return !written, err
	}
	written, err := txn.Texts(ctx, t, query, args...)
	if err != nil || len(written) == len(results) {
		return false, err
	}
	open := make(map[string]bool, len(written))
	for _, id := range written {
		open[id] = true
	}
	for i := range results { // of two with the same id the first was written
		results[i].Duplicate = !open[results[i].ID]
		delete(open, results[i].ID)
	}
	return true, nil
}

// verify makes sure that each duplicate has its twin in the log, by id or key. One that has none was passed over for its number:
// the sequence stands below the log. That must not be taken for a success.
func (o *Outbox) verify(ctx context.Context, t txn.Tx, events []Event, results []Result) error {
	ids, keys := []string{}, []string{}
	for i, r := range results {
		if r.Duplicate {
			ids, keys = append(ids, r.ID), append(keys, events[i].DedupKey)
		}
	}
	idsJSON, idsErr := json.Marshal(ids)
	keysJSON, keysErr := json.Marshal(keys)
	if err := errors.Join(idsErr, keysErr); err != nil {
		return err
	}
	present, err := txn.Texts(ctx, t, o.statements.present, string(idsJSON), string(keysJSON))
	if err != nil {
		return fmt.Errorf("look for the twins of duplicates: %w", err)
	}
	known := make(map[string]bool, len(present))
	for _, text := range present {
		known[text] = true
	}
	for i, id := range ids {
		if !known["id "+id] && !known["key "+keys[i]] {
			return fmt.Errorf("event %s was not written, and it is no duplicate%s", id, sequenceBehind)
		}
	}
	return nil
}

// appendNarrow appends the parameters that each row has, in the order of insertNarrow. Only types that every driver takes: text,
// int64, []byte, time and nil.
func (o *Outbox) appendNarrow(args []any, e *Event, id string, trace []header) []any {
	var payload any
	if e.Payload != nil {
		payload = string(e.Payload)
	}
	return append(args, id, e.Topic, e.Key, e.AggregateType, e.AggregateID, e.AggregateVersion, e.Type,
		int64(max(e.Version, 1)), e.SchemaRef, payload, o.headersJSON(e.Headers, trace))
}

// appendWide appends the rest.
func (o *Outbox) appendWide(args []any, e *Event) []any {
	var payloadBytes, dedupKey, availableAt any
	if e.PayloadBytes != nil {
		payloadBytes = e.PayloadBytes
	}
	if e.DedupKey != "" {
		dedupKey = e.DedupKey
	}
	if !e.AvailableAt.IsZero() {
		availableAt = e.AvailableAt.UTC()
		if o.dialect == SQLite {
			availableAt = e.AvailableAt.UnixMicro()
		}
	}
	return append(args, payloadBytes, dedupKey, availableAt)
}

// numbered says which events of a call a statement had, for errors.
func numbered(from, to int) string {
	if to == from+1 {
		return fmt.Sprintf("event %d", from)
	}
	return fmt.Sprintf("events %d to %d", from, to-1)
}

// hint says what to do about the errors of a database that have one cause in practice.
func hint(err error) string {
	if txn.State(err) == "23505" { // unique_violation: of seq, the only key that on conflict does not pass over
		return sequenceBehind
	}
	return txn.Hint(err)
}

const sequenceBehind = ": outbox_event_seq stands below numbers that are in use, as after a partial restore: " +
	"set it, with setval, to the highest outbox_event.seq and outbox_cursor.position"
