package sqlite_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/pillarbox-dev/pillarbox/relay"
	"github.com/pillarbox-dev/pillarbox/store/sqlite"
)

// noting is a hook that writes each outcome down, and what it sees of the settle in its transaction.
type noting struct {
	calls int
	fail  error
}

func (n *noting) onSettle(ctx context.Context, tx *sql.Tx, destination string, s relay.Settlement) error {
	n.calls++
	const note = `insert into told
		select ?1, ?2, ?3, (select position from outbox_cursor where destination = ?1),
		       (select count(*) from outbox_delivery where destination = ?1)`
	for _, p := range s.Published {
		if _, err := tx.ExecContext(ctx, note, destination, p.Seq, "PUBLISHED"); err != nil {
			return err
		}
	}
	for _, r := range s.Rows {
		if _, err := tx.ExecContext(ctx, note, destination, r.Seq, string(r.Status)); err != nil {
			return err
		}
	}
	return n.fail
}

func newNoting(t *testing.T) (*noting, *database) {
	t.Helper()
	hook := &noting{}
	d := newDatabase(t, sqlite.Config{OnSettle: hook.onSettle})
	const table = "create table told (destination text, seq integer, status text, position integer, rows integer) strict"
	if _, err := d.db.ExecContext(t.Context(), table); err != nil {
		t.Fatal(err)
	}
	return hook, d
}

// publish is a settlement that publishes the numbers from 1 to n and has one row of each kind that a service cares for.
func publish(number int64, n int) relay.Settlement {
	s := relay.Settlement{Number: number, Position: int64(n), InFlightTo: int64(n) + 100, Rows: []relay.Row{
		{Seq: 9998, Status: relay.StatusFailed, ErrorCode: "HTTP_503"}, {Seq: 9999, Status: relay.StatusQuarantined},
	}}
	for seq := range int64(n) {
		s.Published = append(s.Published, relay.Receipt{Seq: seq + 1})
	}
	return s
}

func (d *database) want(t *testing.T, what string, want int64, query string, args ...any) {
	t.Helper()
	if got := number(t, d.db, query, args...); got != want {
		t.Errorf("%s: got %d, want %d", what, got, want)
	}
}

// What the hook writes commits with the cursor and the rows.
func TestOnSettleCommitsWithTheSettle(t *testing.T) {
	hook, d := newNoting(t)
	for _, n := range []int{0, 1, 200} {
		destination := fmt.Sprint("d-", n)
		lease := d.lease(t, destination)
		d.settle(t, lease, publish(1, n))
		const told = "select count(*) from told where destination = ?1 and position = ?2 and rows = ?3 and "
		d.want(t, "published", int64(n), told+"status = 'PUBLISHED'", destination, n, n+2)
		d.want(t, "failed", 1, told+"seq = 9998 and status = 'FAILED'", destination, n, n+2)
		d.want(t, "quarantined", 1, told+"seq = 9999 and status = 'QUARANTINED'", destination, n, n+2)
	}
	calls := hook.calls
	d.settle(t, d.lease(t, "bare"), relay.Settlement{Position: 1})
	if hook.calls != calls {
		t.Error("the hook was called for a settle of the cursor alone")
	}
}

// An error rolls everything back, and is the store's to return.
func TestOnSettleErrorRollsBack(t *testing.T) {
	hook, d := newNoting(t)
	lease := d.lease(t, "d")
	for _, cause := range []error{errors.New("out of stamps"), sql.ErrNoRows} {
		hook.fail = cause
		_, err := d.store.Settle(t.Context(), lease, publish(1, 60))
		var storeErr *sqlite.Error
		if !errors.Is(err, cause) || errors.Is(err, relay.ErrLeaseLost) || !errors.As(err, &storeErr) ||
			!strings.Contains(storeErr.Hint, "OnSettle") {
			t.Fatalf("got %v, want the hook's %v with a hint", err, cause)
		}
		d.want(t, "what is written", 0, `select (select count(*) from told) + (select count(*) from outbox_delivery)
			+ (select position from outbox_cursor)`)
	}
	hook.fail = nil
	d.settle(t, lease, publish(1, 60))
	d.want(t, "told when the hook is mended", 62, "select count(*) from told")
}

// A settle that is repeated calls the hook once; one that comes too late, or without the lease, never.
func TestOnSettleOnceForEachCommit(t *testing.T) {
	hook, d := newNoting(t)
	lease := d.lease(t, "d")
	d.settle(t, lease, publish(2, 5))
	d.settle(t, lease, publish(2, 5))
	d.want(t, "told after a repetition", 7, "select count(*) from told")
	if _, err := d.store.Settle(t.Context(), lease, publish(1, 5)); err == nil {
		t.Error("a settle that was given up is no error")
	}
	if _, err := d.db.ExecContext(t.Context(), "update outbox_cursor set lease_epoch = lease_epoch + 1"); err != nil {
		t.Fatal(err)
	}
	if _, err := d.store.Settle(t.Context(), lease, publish(3, 5)); !errors.Is(err, relay.ErrLeaseLost) {
		t.Errorf("got %v, want ErrLeaseLost", err)
	}
	d.want(t, "told", 7, "select count(*) from told")
	if hook.calls != 1 {
		t.Errorf("%d calls, want 1", hook.calls)
	}
}

// A takeover changes rows without a word to the hook.
func TestOnSettleIsNotToldOfTakeovers(t *testing.T) {
	now := time.Now()
	hook := &noting{}
	d := newDatabase(t, sqlite.Config{OnSettle: func(context.Context, *sql.Tx, string, relay.Settlement) error {
		hook.calls++
		return nil
	}, Now: func() time.Time { return now }})
	row := relay.Row{Seq: 1, Status: relay.StatusPublishing, Attempts: 1}
	d.settle(t, d.lease(t, "d"), relay.Settlement{Rows: []relay.Row{row}})
	now = now.Add(time.Hour)
	if _, err := d.store.Recover(t.Context(), d.lease(t, "d"), 10); err != nil {
		t.Fatal(err)
	}
	if got := texts(t, d.db, "select status from outbox_delivery"); len(got) != 1 || got[0] != "FAILED" {
		t.Errorf("the row is %v, want FAILED", got)
	}
	if hook.calls != 1 {
		t.Errorf("%d calls, want 1", hook.calls)
	}
}
