package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/pillarbox-dev/pillarbox/relay"
	"github.com/pillarbox-dev/pillarbox/store/postgres"
)

// noting is a hook that writes each outcome down, and what it sees of the settle in its transaction.
type noting struct {
	calls int
	fail  error
}

const toldTable = "create table told (destination text, seq bigint, status text, position bigint, rows bigint)"

func (n *noting) onSettle(ctx context.Context, tx pgx.Tx, destination string, s relay.Settlement) error {
	n.calls++
	const note = `insert into told
		select $1, $2, $3, (select position from outbox_cursor where destination = $1),
		       (select count(*) from outbox_delivery where destination = $1)`
	for _, p := range s.Published {
		if _, err := tx.Exec(ctx, note, destination, p.Seq, "PUBLISHED"); err != nil {
			return err
		}
	}
	for _, r := range s.Rows {
		if _, err := tx.Exec(ctx, note, destination, r.Seq, r.Status); err != nil {
			return err
		}
	}
	return n.fail
}

func newNoting(t *testing.T) (*noting, *postgres.Store, *pgx.Conn) {
	t.Helper()
	url := database(t)
	conn := connect(t, url)
	exec(t, conn, toldTable)
	hook := &noting{}
	return hook, open(t, postgres.Config{URL: url, OnSettle: hook.onSettle}), conn
}

// What the hook writes commits with the cursor and the rows, however many there are, and also over rows of before.
func TestOnSettleCommitsWithTheSettle(t *testing.T) {
	hook, store, conn := newNoting(t)
	for _, n := range []int{0, 1, 200} {
		destination := fmt.Sprint("d-", n)
		lease := acquire(t, store, destination)
		s := settlement(n)
		s.Rows = []relay.Row{
			{Seq: 9998, Status: relay.StatusFailed, ErrorCode: "HTTP_503"}, {Seq: 9999, Status: relay.StatusQuarantined},
		}
		for round := range 2 { // the second time somebody moved the cursor back
			settled, err := store.Settle(t.Context(), lease, s)
			if err != nil || settled.Bound == 0 {
				t.Fatalf("%d published, round %d: %+v, %v", n, round, settled, err)
			}
			check(t, "rows", value[int](t, conn, "select count(*) from outbox_delivery where destination = $1", destination), n+2)
			check(t, "the position", positionOf(t, conn, destination), int64(n))
			told := "select count(*) from told where destination = $1 and position = $2 and rows = $3 and "
			for where, want := range map[string]int{"status = 'PUBLISHED'": n, "seq = 9998 and status = 'FAILED'": 1,
				"seq = 9999 and status = 'QUARANTINED'": 1} {
				check(t, where, value[int](t, conn, told+where, destination, n, n+2), want*(round+1))
			}
		}
	}
	calls := hook.calls
	if err := settleError(store, acquire(t, store, "bare")); err != nil {
		t.Fatal(err)
	}
	check(t, "calls for a settle of the cursor alone", hook.calls-calls, 0)
}

// An error rolls everything back. It is the store's to return, and no lost lease, whatever it says.
func TestOnSettleErrorRollsBack(t *testing.T) {
	hook, store, conn := newNoting(t)
	lease := acquire(t, store, "d")
	for _, cause := range []error{errors.New("out of stamps"), pgx.ErrNoRows} {
		for _, n := range []int{3, 200} {
			s := settlement(n)
			s.Number = int64(n)
			hook.fail = cause
			_, err := store.Settle(t.Context(), lease, s)
			if !errors.Is(err, cause) || errors.Is(err, relay.ErrLeaseLost) {
				t.Fatalf("got %v, want the hook's %v", err, cause)
			}
			wantError(t, err, "settle d: OnSettle: ")
			wantError(t, err, "mend what OnSettle does")
			check(t, "the position", positionOf(t, conn, "d"), 0)
			const written = "select (select count(*) from told) + (select count(*) from outbox_delivery)"
			check(t, "rows", value[int](t, conn, written), 0)
		}
	}
	hook.fail = nil
	s := settlement(3)
	s.Number = 3
	if _, err := store.Settle(t.Context(), lease, s); err != nil {
		t.Errorf("when the hook is mended: %v", err)
	}
	check(t, "told", value[int](t, conn, "select count(*) from told"), 3)
}

// A statement of the hook that fails aborts the transaction, also when the hook passes over it.
func TestOnSettleHidesNoFailure(t *testing.T) {
	url := database(t)
	store := open(t, postgres.Config{URL: url, OnSettle: func(ctx context.Context, tx pgx.Tx, _ string, _ relay.Settlement) error {
		_, _ = tx.Exec(ctx, "select 1/0")
		return nil
	}})
	if _, err := store.Settle(t.Context(), acquire(t, store, "d"), settlement(1)); err == nil {
		t.Error("a settle whose transaction was aborted is no error")
	}
	check(t, "the position", positionOf(t, connect(t, url), "d"), 0)
}

// A settle that is repeated calls the hook once; one that comes too late, or without the lease, never.
func TestOnSettleOnceForEachCommit(t *testing.T) {
	hook, store, conn := newNoting(t)
	lease := acquire(t, store, "d")
	s := settlement(5)
	s.Number = 2
	for range 2 {
		if _, err := store.Settle(t.Context(), lease, s); err != nil {
			t.Fatal(err)
		}
	}
	check(t, "told after a repetition", value[int](t, conn, "select count(*) from told"), 5)
	s.Number = 1
	_, err := store.Settle(t.Context(), lease, s)
	wantError(t, err, "number 1 comes after 2")
	exec(t, conn, "update outbox_cursor set lease_epoch = lease_epoch + 1")
	s.Number = 3
	if _, err := store.Settle(t.Context(), lease, s); !errors.Is(err, relay.ErrLeaseLost) {
		t.Errorf("got %v, want ErrLeaseLost", err)
	}
	check(t, "calls", hook.calls, 1)
	check(t, "told", value[int](t, conn, "select count(*) from told"), 5)
}

// A takeover changes rows without a word to the hook.
func TestOnSettleIsNotToldOfTakeovers(t *testing.T) {
	hook, store, conn := newNoting(t)
	lease := acquire(t, store, "d")
	row := relay.Row{Seq: 1, Status: relay.StatusPublishing, Attempts: 1}
	if _, err := store.Settle(t.Context(), lease, relay.Settlement{Rows: []relay.Row{row}}); err != nil {
		t.Fatal(err)
	}
	exec(t, conn, "update outbox_cursor set lease_expires_at = now()")
	if _, err := store.Recover(t.Context(), acquire(t, store, "d"), 10); err != nil {
		t.Fatal(err)
	}
	check(t, "the row", value[string](t, conn, "select status from outbox_delivery"), "FAILED")
	check(t, "calls", hook.calls, 1)
}
