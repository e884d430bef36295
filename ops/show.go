package ops

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"math"
)

// maxHistory is how many lines of the operators' log Show returns.
const maxHistory = 100

type showTexts struct {
	cursors, deliveries, event, archived, archivedDeliveries, history string
}

func (o *Ops) showTexts() (t showTexts, err error) {
	return t, fill(o.dialect, o.schemaName, map[string]*string{
		"events_cursors": &t.cursors, "deliveries": &t.deliveries, "event": &t.event,
		"archived_event": &t.archived, "archived_deliveries": &t.archivedDeliveries, "log_of_event": &t.history,
	})
}

// String names the event for a person.
func (r EventRef) String() string {
	if r.Seq != 0 {
		return fmt.Sprintf("event %d", r.Seq)
	}
	return "event " + r.EventID
}

// Show returns all that is known of an event: out of the log, or out of the archive when retention has moved it there. The error
// is ErrNotFound when it is in neither.
func (o *Ops) Show(ctx context.Context, ref EventRef) (EventDetail, error) {
	e, err := o.show(ctx, ref)
	if err != nil {
		return EventDetail{}, fmt.Errorf("show %v: %w", ref, err)
	}
	return e, nil
}

func (o *Ops) show(ctx context.Context, ref EventRef) (EventDetail, error) {
	if ref.Seq < 0 || ref.Seq == 0 && ref.EventID == "" {
		return EventDetail{}, &RefusedError{Why: "no event is named: give its number or its id"}
	}
	texts, err := o.showTexts()
	if err != nil {
		return EventDetail{}, err
	}
	tx, err := o.look(ctx, o.queries.plan)
	if err != nil {
		return EventDetail{}, err
	}
	defer tx.Rollback()
	e, err := readEvent(ctx, tx, texts.event, ref)
	if errors.Is(err, ErrNotFound) {
		e, err = readEvent(ctx, tx, texts.archived, ref)
		e.Archived = true
	}
	if err != nil {
		return EventDetail{}, err
	}
	if e.Archived {
		e.Deliveries, err = archivedDeliveries(ctx, tx, texts.archivedDeliveries, e.Seq)
	} else {
		e.Deliveries, err = allDeliveries(ctx, tx, texts, &e)
	}
	if err != nil {
		return EventDetail{}, err
	}
	e.History, err = readLog(ctx, tx, direct(texts.history, "desc"), LogFilter{Seq: e.Seq}, 0, math.MaxInt64, maxHistory)
	return e, err
}

// readEvent reads an event of the log or of the archive.
func readEvent(ctx context.Context, tx *sql.Tx, query string, ref EventRef) (EventDetail, error) {
	var e EventDetail
	var created int64
	var available sql.NullInt64
	var payload sql.NullString
	var headers string
	err := tx.QueryRowContext(ctx, query, ref.Seq, ref.EventID).Scan(&e.Seq, &e.EventID, &e.Topic, &e.Key, &e.AggregateType,
		&e.AggregateID, &e.AggregateVersion, &e.EventType, &e.EventVersion, &e.SchemaRef, &e.DedupKey, &created, &available,
		&payload, &e.PayloadBytes, &headers)
	if errors.Is(err, sql.ErrNoRows) {
		return e, ErrNotFound
	}
	if err != nil {
		return e, fmt.Errorf("read the event: %w", err)
	}
	e.CreatedAt, e.AvailableAt = *moment(sql.NullInt64{Int64: created, Valid: true}), moment(available)
	e.Headers = json.RawMessage(headers)
	if payload.Valid {
		e.Payload = json.RawMessage(payload.String)
	}
	return e, nil
}

// allDeliveries returns what the event is to each destination that wants it or has a row for it.
func allDeliveries(ctx context.Context, tx *sql.Tx, texts showTexts, e *EventDetail) ([]Delivery, error) {
	cursors, err := lookAtCursors(ctx, tx, texts.cursors, "", e.Seq)
	if err != nil {
		return nil, err
	}
	all := []Delivery{}
	for i := range cursors {
		c := &cursors[i]
		found, err := lookAtDeliveries(ctx, tx, texts.deliveries, c.destination, []int64{e.Seq}, looking{limit: 1})
		if err != nil {
			return nil, err
		}
		for _, d := range found {
			if d.Status == "" {
				if !c.wants(&d) {
					continue
				}
				c.pending(&d)
			}
			all = append(all, d)
		}
	}
	return all, nil
}

func archivedDeliveries(ctx context.Context, tx *sql.Tx, query string, seq int64) ([]Delivery, error) {
	all := []Delivery{}
	err := each(ctx, tx, query, []any{seq}, func(scan func(...any) error) error {
		var destination string
		d, err := scanDelivery(scan, &destination)
		d.Destination, d.Version = destination, "" // there is nothing left to be done to it
		all = append(all, d)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read the archived deliveries: %w", err)
	}
	return all, nil
}
