package postgres_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pillarbox-dev/pillarbox/relay"
	"github.com/pillarbox-dev/pillarbox/store/postgres"
)

func acquire(t testing.TB, s *postgres.Store, destination string) relay.LeaseID {
	t.Helper()
	request := relay.AcquireRequest{Destination: destination, Owner: "relay-1", TTL: time.Hour}
	lease, ok, err := s.Acquire(context.Background(), request)
	if err != nil || !ok {
		t.Fatalf("acquire %s: %v, %v", destination, ok, err)
	}
	return lease.LeaseID
}

// settlement publishes the numbers from 1 to n.
func settlement(n int) relay.Settlement {
	s := relay.Settlement{Position: int64(n), InFlightTo: int64(n) + 100}
	for seq := range int64(n) {
		s.Published = append(s.Published, relay.Receipt{Seq: seq + 1, Receipt: fmt.Sprintf("0@%d", seq)})
	}
	return s
}

func settleError(s *postgres.Store, l relay.LeaseID) error {
	_, err := s.Settle(context.Background(), l, relay.Settlement{})
	return err
}

func databaseOf(t testing.TB, conn *pgx.Conn) string {
	t.Helper()
	return pgx.Identifier{value[string](t, conn, "select current_database()")}.Sanitize()
}

func value[T any](t testing.TB, conn *pgx.Conn, sql string, args ...any) (v T) {
	t.Helper()
	if err := conn.QueryRow(context.Background(), sql, args...).Scan(&v); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return v
}

func positionOf(t testing.TB, conn *pgx.Conn, destination string) int64 {
	t.Helper()
	return value[int64](t, conn, "select position from outbox_cursor where destination = $1", destination)
}

// terminate ends all connections of the database but this one, as an administrator does.
func terminate(t testing.TB, conn *pgx.Conn) {
	t.Helper()
	exec(t, conn, `select pg_terminate_backend(pid) from pg_stat_activity
		where datname = current_database() and pid <> pg_backend_pid()`)
}

// TestSettleOfAnySize goes through the three ways of writing what was published: by INSERT, by COPY, and over what is
// there already.
func TestSettleOfAnySize(t *testing.T) {
	url := database(t)
	store := open(t, postgres.Config{URL: url})
	conn := connect(t, url)
	for _, n := range []int{1, 127, 128, 3000} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			destination := fmt.Sprintf("ünicode-%d", n)
			lease := acquire(t, store, destination)
			count := func(where string) int {
				return value[int](t, conn, "select count(*) from outbox_delivery where destination = $1 and "+where, destination)
			}
			// Some stand there already, at the end, so that a COPY has written nearly all before it fails.
			first := settlement(n)
			first.Published = first.Published[n/2:]
			first.Rows = []relay.Row{{Seq: 9999, Status: relay.StatusFailed, ErrorCode: "OLD"}}
			for _, s := range []relay.Settlement{first, settlement(n), settlement(n)} {
				settled, err := store.Settle(t.Context(), lease, s)
				if err != nil {
					t.Fatal(err)
				}
				next := value[int64](t, conn, "select pg_snapshot_xmax(pg_current_snapshot())::text::bigint")
				if settled.Bound == 0 || settled.Bound >= uint64(next) {
					t.Errorf("bound %d, want an xid below %d", settled.Bound, next)
				}
			}
			check(t, "rows", count("true"), n+1)
			check(t, "published rows with their receipts", count(`status = 'PUBLISHED' and attempt_count = 1
				and published_at is not null and receipt = '0@' || seq - 1 and partition_key is null and endpoint is null and last_error_code is null`), n)
			check(t, "rows of before", count("status = 'FAILED' and last_error_code = 'OLD'"), 1)
			check(t, "the position", positionOf(t, conn, destination), int64(n))
		})
	}
}

func check[T comparable](t testing.TB, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}

// TestSettleWithALostLeaseWritesNothing is about each way of writing, with and without a known place of the cursor row.
func TestSettleWithALostLeaseWritesNothing(t *testing.T) {
	url := database(t)
	store, other := open(t, postgres.Config{URL: url}), open(t, postgres.Config{URL: url})
	conn := connect(t, url)
	withRow := settlement(3000)
	withRow.Rows = []relay.Row{{Seq: 5000, Status: relay.StatusQuarantined}}
	for i, s := range []relay.Settlement{{Position: 7}, settlement(5), settlement(3000), withRow, {Rows: withRow.Rows}} {
		destination := fmt.Sprint("d-", i)
		lease := acquire(t, store, destination)
		if _, err := store.Settle(t.Context(), lease, relay.Settlement{Position: 1}); err != nil {
			t.Fatal(err)
		}
		exec(t, conn, "update outbox_cursor set lease_expires_at = now()")
		acquire(t, other, destination)
		for range 2 {
			if _, err := store.Settle(t.Context(), lease, s); !errors.Is(err, relay.ErrLeaseLost) {
				t.Errorf("settlement %d: got %v, want ErrLeaseLost", i, err)
			}
		}
		check(t, "the position", positionOf(t, conn, destination), 1)
	}
	check(t, "rows", value[int](t, conn, "select count(*) from outbox_delivery"), 0)
}

// TestSettleIsNumbered: a settle that is repeated changes nothing, and one that was given up and arrives late is refused, however
// it writes.
func TestSettleIsNumbered(t *testing.T) {
	url := database(t)
	store := open(t, postgres.Config{URL: url})
	conn := connect(t, url)
	for _, n := range []int{0, 5, 500} {
		destination := fmt.Sprint("d-", n)
		lease := acquire(t, store, destination)
		if _, err := store.Recover(t.Context(), lease, 10); err != nil {
			t.Fatal(err)
		}
		s := settlement(n)
		s.Number, s.Position = 1, 1000
		if settled, err := store.Settle(t.Context(), lease, s); err != nil || settled.Bound == 0 {
			t.Fatalf("the first: %+v, %v", settled, err)
		}
		// An operator works meanwhile; the answer was lost, so the same comes again.
		exec(t, conn, "update outbox_cursor set position = 7 where destination = $1", destination)
		exec(t, conn, "update outbox_delivery set status = 'FAILED' where destination = $1", destination)
		exec(t, conn, "update outbox_cursor set lease_expires_at = now() where destination = $1", destination)
		if settled, err := store.Settle(t.Context(), lease, s); err != nil || settled != (relay.Settled{}) {
			t.Errorf("the first again: %+v, %v, want neither a bound nor an error", settled, err)
		}
		check(t, "the position", positionOf(t, conn, destination), 7)
		check(t, "rows that the operator changed", value[int](t, conn,
			"select count(*) from outbox_delivery where status = 'FAILED' and destination = $1", destination), n)
		check(t, "the lease is prolonged", value[bool](t, conn,
			"select lease_expires_at > now() + interval '30 minutes' from outbox_cursor where destination = $1", destination), true)

		if _, err := store.Settle(t.Context(), lease, relay.Settlement{Number: 3, Position: 3}); err != nil {
			t.Fatal(err)
		}
		s.Number = 2
		_, err := store.Settle(t.Context(), lease, s)
		wantError(t, err, "number 2 comes after 3")
		check(t, "the position", positionOf(t, conn, destination), 3)
		_, err = store.Recover(t.Context(), lease, 10)
		wantError(t, err, "comes after settle 3")
		if _, err := store.Settle(t.Context(), lease, relay.Settlement{Position: 4}); err != nil {
			t.Errorf("without a number: %v", err)
		}
		check(t, "the position", positionOf(t, conn, destination), 4)
		exec(t, conn, "update outbox_cursor set lease_expires_at = now() where destination = $1", destination)
		if _, err := store.Settle(t.Context(), acquire(t, store, destination), relay.Settlement{Number: 1, Position: 5}); err != nil {
			t.Errorf("the next lease counts from 1: %v", err)
		}
	}
}

// TestSettleWaitsForAnOperator lets an operator's transaction hold the cursor row and change it while a settle waits. The
// settle must find the row where it went to, in every version of PostgreSQL.
func TestSettleWaitsForAnOperator(t *testing.T) {
	url := database(t)
	store := open(t, postgres.Config{URL: url})
	lease := acquire(t, store, "d")
	conn, operator, long := connect(t, url), connect(t, url), connect(t, url)
	for round := range 4 {
		if round == 2 { // from here on the store finds the row by its place: see TestCursorRowStaysInPlace
			exec(t, long, "begin; select pg_current_xact_id()")
			for range 150 {
				if err := settleError(store, lease); err != nil {
					t.Fatal(err)
				}
			}
		}
		exec(t, operator, "begin")
		exec(t, operator, "update outbox_cursor set paused_at = now(), paused_reason = 'a test', paused_by = 'me'")
		done := make(chan error)
		go func() {
			_, err := store.Settle(t.Context(), lease, settlement(200*(round%2)))
			done <- err
		}()
		await(t, "the settle waits", func() bool {
			return value[bool](t, conn, "select exists (select from pg_locks where not granted)")
		})
		exec(t, operator, "commit")
		if err := <-done; err != nil {
			t.Errorf("round %d: %v", round, err)
		}
	}
	renewal, err := store.Renew(t.Context(), lease)
	if want := (relay.Pause{Reason: "a test", By: "me"}); err != nil || renewal.Pause != want {
		t.Errorf("Renew: got %+v, %v, want the pause %+v", renewal, err, want)
	}
	// The same with a lease that is taken over meanwhile.
	exec(t, operator, "begin")
	exec(t, operator, "update outbox_cursor set lease_epoch = lease_epoch + 1, lease_owner = 'relay-2'")
	done := make(chan error)
	go func() { done <- settleError(store, lease) }()
	await(t, "the settle waits", func() bool {
		return value[bool](t, conn, "select exists (select from pg_locks where not granted)")
	})
	exec(t, operator, "commit")
	if err := <-done; !errors.Is(err, relay.ErrLeaseLost) {
		t.Errorf("got %v, want ErrLeaseLost", err)
	}
}

func await(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for began := time.Now(); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Since(began) > 20*time.Second {
			t.Fatalf("not within 20 s: %s", what)
		}
	}
}

func TestSettleKeepsTextsThatPostgreSQLCannot(t *testing.T) {
	url := database(t)
	store := open(t, postgres.Config{URL: url})
	conn := connect(t, url)
	lease := acquire(t, store, "d")
	dirty, clean := "a\xff\x00b", "a\uFFFD\uFFFDb"
	s := settlement(150)
	for i := range s.Published {
		s.Published[i].Receipt = dirty
	}
	s.Rows = []relay.Row{
		{Seq: 1000, Status: relay.StatusFailed, Endpoint: dirty, Key: dirty, OpenLane: true, Due: true,
			ErrorCode: dirty, ErrorMessage: dirty},
		{Seq: 1001, Status: relay.StatusFailed, ErrorCode: "FIRST"},
		{Seq: 1001, Status: relay.StatusFailed, ErrorCode: "LAST"}, // of two rows with one number the last one counts
	}
	s.Trouble, s.Pause = dirty, relay.Pause{Reason: dirty, By: dirty}
	exec(t, conn, "insert into outbox_event (seq, topic_name, event_type) values (1000, 't', 'T')")
	if _, err := store.Settle(t.Context(), lease, s); err != nil {
		t.Fatal(err)
	}
	check(t, "receipts", value[int](t, conn, "select count(*) from outbox_delivery where receipt = $1", clean), 150)
	check(t, "the row", value[int](t, conn, `select count(*) from outbox_delivery where seq = 1000 and endpoint = $1
		and partition_key = $1 and last_error_code = $1 and last_error_message = $1`, clean), 1)
	last := value[string](t, conn, "select last_error_code from outbox_delivery where seq = 1001")
	check(t, "the last one of two", last, "LAST")
	lane := relay.LaneID{Endpoint: dirty, Key: dirty}
	claimed, err := store.Claim(t.Context(), lease, relay.Claim{Lane: &lane, Limit: 10, MaxBytes: 1000})
	if err != nil || len(claimed.Deliveries) != 1 {
		t.Errorf("claim by the same lane: %v, %v, want one", claimed, err)
	}
}

// TestCursorRowStaysInPlace: as a rule every update of outbox_cursor is HOT, so its index does not grow. While a transaction is
// open the row has to move on; then it is found by its place, and not through the index that leads to all its old versions.
func TestCursorRowStaysInPlace(t *testing.T) {
	const settles = 2000
	for _, test := range []struct {
		name                  string
		open                  bool
		mostCold, mostByIndex int
	}{
		{"nobody is in its way", false, settles / 50, settles + 10},
		{"a transaction is open", true, settles, settles / 4},
	} {
		t.Run(test.name, func(t *testing.T) {
			url := database(t)
			store := open(t, postgres.Config{URL: url})
			conn, long := connect(t, url), connect(t, url)
			lease := acquire(t, store, "d")
			if test.open {
				exec(t, long, "begin; select pg_current_xact_id()")
			}
			for i := range settles {
				s := relay.Settlement{Position: int64(i), Asleep: i%2 == 0, Trouble: fmt.Sprint(i % 3)}
				s.Gaps = []relay.Range{{First: 1, Last: int64(i) + 1}}
				if _, err := store.Settle(t.Context(), lease, s); err != nil {
					t.Fatal(err)
				}
			}
			store.Close() // a session's statistics are sent at its end at the latest
			await(t, "the statistics arrive", func() bool {
				return value[int](t, conn, "select n_tup_upd from pg_stat_user_tables where relname = 'outbox_cursor'") > settles
			})
			cold := value[int](t, conn, `select n_tup_upd - n_tup_hot_upd from pg_stat_user_tables
				where relname = 'outbox_cursor'`)
			byIndex := value[int](t, conn, "select idx_scan from pg_stat_user_indexes where indexrelname = 'outbox_cursor_pkey'")
			if cold > test.mostCold || byIndex > test.mostByIndex {
				t.Errorf("of %d settles %d were not HOT and %d went through the index, want at most %d and %d",
					settles, cold, byIndex, test.mostCold, test.mostByIndex)
			}
			t.Logf("of %d settles %d were not HOT and %d went through the index", settles, cold, byIndex)
		})
	}
}

// TestSettleKeepsTheLongestKey: what the relay lets into a lane fits in the indexes of the ledger, also when it cannot be compressed.
func TestSettleKeepsTheLongestKey(t *testing.T) {
	url := database(t)
	store := open(t, postgres.Config{URL: url})
	lease := acquire(t, store, strings.Repeat("d", relay.MaxNameLength))
	text := func() string {
		var b strings.Builder
		for b.Len() < relay.MaxKeyLength {
			b.WriteString(rand.Text())
		}
		return b.String()[:relay.MaxKeyLength]
	}
	row := relay.Row{Seq: 1, Status: relay.StatusFailed, OpenLane: true, Endpoint: text(), Key: text(), Due: true}
	if _, err := store.Settle(t.Context(), lease, relay.Settlement{Position: 1, Rows: []relay.Row{row}}); err != nil {
		t.Error(err)
	}
}
