package ops_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/pillarbox-dev/pillarbox/ops"
	"github.com/pillarbox-dev/pillarbox/outbox/schema"
)

// Rows below the number stay, and what is not visible below it may still commit.
func TestResetCursorInTheMiddle(t *testing.T) {
	onBoth(t, func(b *box) {
		b.events(100, "a", 0)
		b.cursor("d", 100)
		b.cursor("other", 100)
		b.deliveries(100, "PUBLISHED", 1)
		b.exec("update outbox_delivery set status = 'FAILED' where seq in (10, 90)")
		b.must(b.Pause(b.Context(), "d", ops.Action{By: "ann", Reason: "their release"}))
		if b.dialect == schema.Postgres {
			b.exec("update outbox_cursor set gaps = '{[5,7),[60,70)}'")
		}
		r, err := b.ResetCursor(b.Context(), "d", 51, ops.Action{By: "bob", Reason: "restored"})
		b.must(err)
		if want := (ops.CursorReset{From: 100, To: 50, Forgotten: 50}); r != want {
			b.Errorf("reset = %+v, want %+v", r, want)
		}
		var left, open int
		b.must(b.db.QueryRowContext(b.Context(), "select count(*), sum(case when status = 'FAILED' then 1 end) from outbox_delivery").Scan(&left, &open))
		if left != 50 || open != 1 {
			b.Errorf("%d rows are left, %d failed, want 50 and 1", left, open)
		}
		for _, d := range b.status().Destinations {
			want := map[string]int64{"d": 50, "other": 100}[d.Destination]
			if d.Position != want || d.LeaseOwner != "" || d.Paused != (d.Destination == "d") || d.Paused && d.PausedReason != "their release" {
				b.Errorf("destination = %+v, want it at %d, and d paused as before", d, want)
			}
		}
		if b.dialect == schema.Postgres {
			var gaps string
			b.must(b.db.QueryRowContext(b.Context(), "select gaps from outbox_cursor where destination = 'd'").Scan(&gaps))
			if gaps != "{[5,7)}" {
				b.Errorf("gaps = %s, want those below 51", gaps)
			}
		}
	})
}

// The shards of a destination are not equally far: what the slowest has not delivered is not skipped.
func TestResetCursorOfShards(t *testing.T) {
	b := newBox(t, schema.Postgres)
	b.events(100, "a", 0)
	b.shards([]int64{20, 80})
	var refused *ops.RefusedError
	if _, err := b.ResetCursor(b.Context(), "d", 51, ann); !errors.As(err, &refused) || !strings.Contains(err.Error(), "at 1 to 21") {
		b.Errorf("beyond the slowest shard: %v, want a refusal", err)
	}
	if got, want := b.cursors(), "0/2 20 20 {} - - 0\n1/2 80 80 {} - - 0"; got != want {
		b.Errorf("cursors =\n%s\nwant\n%s", got, want)
	}
	r, err := b.ResetCursor(b.Context(), "d", 21, ann)
	b.must(err)
	if want := (ops.CursorReset{From: 80, To: 20}); r != want {
		b.Errorf("reset = %+v, want %+v", r, want)
	}
}

// A destination that was paused is so after its reset, also when it was one shard that the guard had paused.
func TestResetCursorKeepsThePause(t *testing.T) {
	b := newBox(t, schema.Postgres)
	b.events(100, "a", 0)
	b.shards([]int64{20, 20})
	b.exec("update outbox_cursor set paused_at = now(), paused_reason = 'storm', paused_by = 'guard' where shard = 0")
	_, err := b.ResetCursor(b.Context(), "d", 21, ann)
	b.must(err)
	if got, want := b.cursors(), "0/2 20 20 {} - storm 0\n1/2 20 20 {} - storm 0"; got != want {
		b.Errorf("cursors =\n%s\nwant\n%s", got, want)
	}
}

// One that is broken off says what to do, and the next one knows yet who had paused the destination before the first.
func TestResetCursorBrokenOff(t *testing.T) {
	onBoth(t, func(b *box) {
		b.events(100, "a", 0)
		b.cursor("d", 100)
		b.deliveries(100, "PUBLISHED", 1)
		b.must(b.Pause(b.Context(), "d", ops.Action{By: "bob", Reason: "their release"}))
		b.exec(b.sql(`create function broken() returns trigger language plpgsql as 'begin raise exception ''broken off''; end'`, "select 1"))
		b.exec(b.sql("create trigger broken before delete on outbox_delivery execute function broken()",
			"create trigger broken before delete on outbox_delivery begin select raise(abort, 'broken off'); end"))
		for range 2 {
			if _, err := b.ResetCursor(b.Context(), "d", 51, ann); err == nil || !strings.Contains(err.Error(), "broken off") {
				b.Fatalf("reset: %v, want it broken off", err)
			}
			if d := b.status().Destinations[0]; !d.Paused || !strings.Contains(d.PausedReason, "run 'pillarbox reset-cursor' again") ||
				!strings.Contains(d.PausedReason, "their release") {
				b.Errorf("destination = %+v, want it paused, and why", d)
			}
		}
		b.exec(b.sql("drop trigger broken on outbox_delivery", "drop trigger broken"))
		_, err := b.ResetCursor(b.Context(), "d", 51, ann)
		b.must(err)
		if d := b.status().Destinations[0]; !d.Paused || d.PausedReason != "their release" || d.PausedBy != "bob" {
			b.Errorf("destination = %+v, want it paused by bob as before", d)
		}
	})
}

// Whoever pauses the destination while its cursor is reset finds it paused afterwards.
func TestResetCursorKeepsAPauseThatCameMeanwhile(t *testing.T) {
	onBoth(t, func(b *box) {
		b.events(100, "a", 0)
		b.cursor("d", 100)
		b.deliveries(100, "PUBLISHED", 1)
		const pause = "update outbox_cursor set paused_reason = ''their release'', paused_by = ''bob''"
		b.exec(b.sql("create function meanwhile() returns trigger language plpgsql as 'begin "+pause+"; return null; end'", "select 1"))
		b.exec(b.sql("create trigger meanwhile after delete on outbox_delivery for each statement execute function meanwhile()",
			"create trigger meanwhile after delete on outbox_delivery begin "+strings.ReplaceAll(pause, "''", "'")+"; end"))
		_, err := b.ResetCursor(b.Context(), "d", 51, ann)
		b.must(err)
		if d := b.status().Destinations[0]; !d.Paused || d.PausedReason != "their release" || d.PausedBy != "bob" {
			b.Errorf("destination = %+v, want it paused by bob", d)
		}
	})
}

// again lets the destination d deliver anew from 11 on, all but the event 30, and reconciles.
func (b *box) again(c ops.ReconcileConfig) {
	b.Helper()
	b.exec("update outbox_cursor set position = 50")
	b.exec(`insert into outbox_delivery (destination, seq, status)
		select 'd', seq, 'PUBLISHED' from outbox_event where seq > 10 and seq <> 30`)
	b.must(b.ReconcileOn(b.Context(), c))
	s, err := b.LastReconciliation(b.Context())
	b.must(err)
	b.wantFound("what was not delivered again", s.Report, "ledger no row in the ledger 30")
}

// The scheduled reconciliation looks anew at what is delivered again.
func TestResetCursorIsReconciled(t *testing.T) {
	onBoth(t, func(b *box) {
		b.events(50, "a", 0)
		b.cursor("d", 50)
		b.deliveries(50, "PUBLISHED", 1)
		c := ops.ReconcileConfig{Ledgers: []string{"d"}}
		b.must(b.ReconcileOn(b.Context(), c))
		_, err := b.ResetCursor(b.Context(), "d", 11, ann)
		b.must(err)
		b.again(c)
	})
}

// Also when it was under way while the cursor was reset.
func TestResetCursorDuringReconciliation(t *testing.T) {
	b := newBox(t, schema.Postgres)
	b.events(50, "a", 0)
	b.cursor("d", 50)
	b.deliveries(50, "PUBLISHED", 1)
	c := ops.ReconcileConfig{Ledgers: []string{"d"}}
	b.must(b.ReconcileOn(b.Context(), c))
	holder, err := b.db.BeginTx(b.Context(), nil)
	b.must(err)
	defer holder.Rollback()
	_, err = holder.ExecContext(b.Context(), "select pg_advisory_xact_lock(77)")
	b.must(err)
	slow := c
	slow.Queries = []ops.ReconcileQuery{{Name: "slow", SQL: "select 1 where pg_advisory_xact_lock(77) is null"}}
	ended := make(chan error, 1)
	go func() { ended <- b.ReconcileOn(b.Context(), slow) }()
	b.await("the reconciliation at its query", func() bool {
		var waits bool
		b.must(b.db.QueryRowContext(b.Context(), `select exists (select from pg_locks
			where locktype = 'advisory' and objid = 77 and not granted)`).Scan(&waits))
		return waits
	})
	_, err = b.ResetCursor(b.Context(), "d", 11, ann)
	b.must(err)
	b.must(holder.Rollback())
	b.must(<-ended)
	b.again(c)
}
