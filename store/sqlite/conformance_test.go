package sqlite_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/pillarbox-dev/pillarbox/relay"
	"github.com/pillarbox-dev/pillarbox/relay/relaytest"
	"github.com/pillarbox-dev/pillarbox/store/sqlite"
)

func TestConformance(t *testing.T) {
	// A rollback gives its numbers back, so there are no gaps.
	relaytest.TestStore(t, relaytest.StoreFeatures{Wake: true}, func(t *testing.T) relaytest.Backend {
		return &backend{newDatabase(t, sqlite.Config{})}
	})
}

// backend is what the suite sees of a database besides the store: plain SQL, as any program could write it.
type backend struct {
	*database
}

func (b *backend) Store() relay.Store { return b.store }

func (b *backend) Begin(t testing.TB) relaytest.Producer {
	t.Helper()
	tx, err := b.db.BeginTx(context.Background(), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tx.Rollback() }) // after the producer has ended it does nothing
	return &producer{tx: tx, committed: b.store.Wake}
}

type producer struct {
	tx        *sql.Tx
	committed func() // what a service with the relay inside calls
}

func (p *producer) Insert(t testing.TB, e relay.Event) int64 {
	t.Helper()
	const insertSQL = `
insert into outbox_event (seq, event_id, topic_name, partition_key, aggregate_type, aggregate_id, aggregate_version, event_type,
       event_version, schema_ref, payload, payload_bytes, headers, available_at, created_at)
values (?1, coalesce(?2, lower(hex(randomblob(16)))), ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14,
       coalesce(?15, cast(round((julianday('now') - 2440587.5) * 86400000) as integer) * 1000))
returning seq`
	var seq, id, payload, payloadBytes, availableAt, createdAt any
	if e.Seq != 0 {
		seq = e.Seq
	}
	if e.ID != "" {
		id = e.ID
	}
	switch {
	case e.Binary:
		payloadBytes = e.Payload
	case e.Payload != nil:
		payload = string(e.Payload)
	}
	if e.AvailableIn != 0 {
		availableAt = time.Now().Add(e.AvailableIn).UnixMicro()
	}
	if !e.CreatedAt.IsZero() {
		createdAt = e.CreatedAt.UnixMicro()
	}
	err := p.tx.QueryRowContext(t.Context(), insertSQL, seq, id, orDefault(e.Topic, "t"), e.Key, e.AggregateType, e.AggregateID,
		e.AggregateVersion, orDefault(e.Type, "x"), e.Version, e.SchemaRef, payload, payloadBytes, orDefault(string(e.Headers), "{}"),
		availableAt, createdAt).Scan(&e.Seq)
	if err != nil {
		t.Fatalf("insert %+v: %v", e, err)
	}
	return e.Seq
}

func orDefault(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}

func (p *producer) Commit(t testing.TB) {
	t.Helper()
	if err := p.tx.Commit(); err != nil {
		t.Fatal(err)
	}
	p.committed()
}

func (p *producer) Rollback(t testing.TB) {
	t.Helper()
	if err := p.tx.Rollback(); err != nil {
		t.Fatal(err)
	}
}

func (b *backend) Cursor(t testing.TB, destination string) (row relaytest.CursorRow, ok bool) {
	t.Helper()
	const cursorSQL = `
select position, gaps, in_flight_to, acquired_position, topics, lease_owner, lease_epoch, lease_expires_at, asleep,
       coalesce(paused_reason, ''), coalesce(paused_by, ''), failing_since, last_error_code, crash_count
  from outbox_cursor where destination = ?1`
	var gaps, topics string
	var owner, code sql.NullString
	var expires, failing sql.NullInt64
	err := b.db.QueryRowContext(t.Context(), cursorSQL, destination).Scan(&row.Position, &gaps, &row.InFlightTo,
		&row.AcquiredPosition, &topics, &owner, &row.Epoch, &expires, &row.Asleep, &row.Pause.Reason, &row.Pause.By, &failing, &code, &row.CrashCount)
	if err == sql.ErrNoRows {
		return relaytest.CursorRow{}, false
	}
	if err != nil {
		t.Fatal(err)
	}
	var ranges [][2]int64
	if err := json.Unmarshal([]byte(gaps), &ranges); err != nil {
		t.Fatalf("gaps %q: %v", gaps, err)
	}
	for _, r := range ranges {
		row.Gaps = append(row.Gaps, relay.Range{First: r[0], Last: r[1]})
	}
	if err := json.Unmarshal([]byte(topics), &row.Topics); err != nil {
		t.Fatalf("topics %q: %v", topics, err)
	}
	row.Owner, row.ErrorCode = owner.String, code.String
	row.ExpiresAt, row.FailingSince = moment(expires), moment(failing)
	return row, true
}

func moment(at sql.NullInt64) time.Time {
	if !at.Valid {
		return time.Time{}
	}
	return time.UnixMicro(at.Int64)
}

func (b *backend) Deliveries(t testing.TB, destination string) (all []relaytest.DeliveryRow) {
	t.Helper()
	const deliveriesSQL = `
select seq, status, attempt_count, coalesce(endpoint, ''), partition_key, next_attempt_at, last_attempt_at, published_at,
       coalesce(locked_by, ''), locked_at, coalesce(receipt, ''), coalesce(last_error_code, ''), coalesce(last_error_message, '')
  from outbox_delivery where destination = ?1 order by seq`
	rows, err := b.db.QueryContext(t.Context(), deliveriesSQL, destination)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var r relaytest.DeliveryRow
		var key sql.NullString
		var next, last, published, locked sql.NullInt64
		err := rows.Scan(&r.Seq, &r.Status, &r.Attempts, &r.Endpoint, &key, &next, &last, &published, &r.LockedBy, &locked, &r.Receipt,
			&r.ErrorCode, &r.ErrorMessage)
		if err != nil {
			t.Fatal(err)
		}
		r.Key, r.OpenLane = key.String, key.Valid
		r.NextAttemptAt, r.LastAttemptAt, r.PublishedAt, r.LockedAt = moment(next), moment(last), moment(published), moment(locked)
		all = append(all, r)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return all
}

func (b *backend) SetPause(t testing.TB, destination string, p relay.Pause) {
	t.Helper()
	const pauseSQL = `
update outbox_cursor set paused_at = ?2, paused_reason = ?3, paused_by = ?4 where destination = ?1`
	var at, reason, by any
	if p != (relay.Pause{}) {
		at, reason, by = time.Now().UnixMicro(), p.Reason, p.By
	}
	if _, err := b.db.ExecContext(t.Context(), pauseSQL, destination, at, reason, by); err != nil {
		t.Fatal(fmt.Errorf("pause %s: %w", destination, err))
	}
}
