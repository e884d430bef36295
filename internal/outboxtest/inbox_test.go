package outboxtest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pillarbox-dev/pillarbox/outbox"
	"github.com/pillarbox-dev/pillarbox/outbox/inbox"
)

// where returns the dialect and the schema of a backend.
func (b backend) where() (outbox.Dialect, string) {
	if b.event == "outbox_event" {
		return outbox.SQLite, ""
	}
	return outbox.Postgres, oddSchema
}

// table returns a table's qualified name.
func (b backend) table(name string) string {
	d, schemaName := b.where()
	return qualified(d, schemaName, name)
}

func newInbox(t testing.TB, b backend, wait time.Duration) *inbox.Inbox {
	t.Helper()
	d, schemaName := b.where()
	in, err := inbox.New(d, inbox.Options{Schema: schemaName, Wait: wait})
	must(t, err)
	return in
}

func wantFirst(t testing.TB, in *inbox.Inbox, tx transaction, consumer, id, body string, want bool) {
	t.Helper()
	got, err := in.First(t.Context(), tx.Tx, consumer, id, []byte(body))
	if err != nil || got != want {
		t.Errorf("First(%s, %s, %s) = %v, %v; want %v", consumer, id, body, got, err, want)
	}
}

func TestInboxFirst(t *testing.T) {
	everywhere(t, func(t *testing.T, b backend) {
		in := newInbox(t, b, 0)
		run(t, b.db, "create table handled (id text)")

		tx := b.begin()
		wantFirst(t, in, tx, "billing", "e1", "{}", true)
		must(t, tx.exec("insert into handled values ('e1')"))
		must(t, tx.Rollback()) // the handler has failed

		tx = b.begin()
		wantFirst(t, in, tx, "billing", "e1", "{}", true)
		wantFirst(t, in, tx, "billing", "e1", "{}", false)
		must(t, tx.exec("insert into handled values ('e1')"))
		must(t, tx.Commit())

		tx = b.begin()
		wantFirst(t, in, tx, "billing", "e1", "{}", false)
		wantFirst(t, in, tx, "shipping", "e1", "other", true)
		wantFirst(t, in, tx, "billing", "ü 'q' \"d\" \\ [1]", "", true)
		if first, err := in.First(t.Context(), tx.Tx, "billing", "e1", []byte("{ }")); first || !errors.Is(err, inbox.ErrDifferentBody) {
			t.Errorf("the same id with another body: got %v, %v", first, err)
		}
		must(t, tx.exec("insert into handled values ('after')")) // the transaction goes on
		must(t, tx.Commit())

		if got, want := list(t, b.db, "select id from handled"), []string{"e1", "after"}; !slices.Equal(got, want) {
			t.Errorf("handled %v, want %v", got, want)
		}
		got := list(t, b.db, "select consumer || ' ' || event_id from "+b.table("outbox_inbox")+" order by 1")
		if want := []string{"billing e1", "billing ü 'q' \"d\" \\ [1]", "shipping e1"}; !slices.Equal(got, want) {
			t.Errorf("the inbox holds %q, want %q", got, want)
		}
	})
}

func TestInboxBatch(t *testing.T) {
	everywhere(t, func(t *testing.T, b backend) {
		in := newInbox(t, b, 0)
		event := func(id, body string) inbox.Event { return inbox.Event{ID: id, Body: []byte(body)} }
		batch := func(want []bool, different []string, events ...inbox.Event) {
			t.Helper()
			tx := b.begin()
			got, err := in.FirstOf(t.Context(), tx.Tx, "c", events...)
			if !slices.Equal(got, want) {
				t.Errorf("got %v, want %v", got, want)
			}
			var e *inbox.DifferentError
			if different == nil && err != nil || different != nil && (!errors.As(err, &e) || !slices.Equal(e.IDs, different) ||
				!errors.Is(err, inbox.ErrDifferentBody)) {
				t.Errorf("got the error %v, want one that names %q", err, different)
			}
			must(t, tx.Commit())
		}
		batch([]bool{}, nil)
		batch([]bool{true, true, false}, nil, event("b", "1"), event("a", "1"), event("b", "1"))
		batch([]bool{false, true, false, false}, nil, event("a", "1"), event("c", "1"), event("b", "1"), event("c", "1"))
		batch([]bool{false, true, false, true, false, false}, []string{"a", "d"},
			event("a", "2"), event("d", "1"), event("c", "1"), event("e", "1"), event("d", "2"), event("a", "1"))
		many, all := make([]inbox.Event, inbox.MaxBatch), make([]bool, inbox.MaxBatch)
		for i := range many {
			many[i], all[i] = event(fmt.Sprintf("many-%d", i), "1"), true
		}
		batch(all, nil, many...)
		batch(make([]bool, len(many)), nil, many...)

		tx := b.begin()
		_, err := in.FirstOf(t.Context(), tx.Tx, "", event("", "1"), event(strings.Repeat("x", 256), "1"), event("a\x00", "1"),
			event("fine", "1"), event("\xff", "1"))
		for _, want := range []string{"consumer is empty", "event 0: ", "event 1: the id has 256 bytes", "event 2: ", "event 4: "} {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("got %v, want all problems, %q among them", err, want)
			}
		}
		if _, err := in.FirstOf(t.Context(), tx.Tx, "c", make([]inbox.Event, inbox.MaxBatch+1)...); err == nil {
			t.Error("a batch that is too large was taken")
		}
	})
}

// TestInboxTwin: the second of two open transactions waits, for a bounded time, and its transaction survives.
func TestInboxTwin(t *testing.T) {
	everywhere(t, func(t *testing.T, b backend) {
		d, _ := b.where()
		if d == outbox.SQLite {
			b.db = openSQLite(t, fileOf(t, b.db)) // the pragma below is the connection's
			b.begin = func() transaction {
				tx := beginSQL(t, b.db)
				must(t, tx.exec("pragma busy_timeout = 100"))
				return tx
			}
		}
		in, patient := newInbox(t, b, 100*time.Millisecond), newInbox(t, b, 20*time.Second)
		holder, second := b.begin(), b.begin()
		wantFirst(t, in, holder, "c", "e", "{}", true)

		if d == outbox.Postgres {
			must(t, second.exec("set local lock_timeout = '7s'"))
		}
		start := time.Now()
		if first, err := in.First(t.Context(), second.Tx, "c", "e", []byte("{}")); first || !errors.Is(err, inbox.ErrInFlight) {
			t.Errorf("while the twin is open: got %v, %v; want ErrInFlight", first, err)
		}
		if waited := time.Since(start); waited < 80*time.Millisecond {
			t.Errorf("it waited only %v", waited)
		}
		if d == outbox.SQLite { // there is one writer: the other waits for all of it, and is begun anew
			must(t, second.Rollback())
			must(t, holder.Commit())
			second = b.begin()
			wantFirst(t, in, second, "c", "e", "{}", false)
			return
		}
		// The transaction is as good as before: nothing is recorded of the batch, and the caller's own timeout holds.
		if _, err := in.FirstOf(t.Context(), second.Tx, "c", inbox.Event{ID: "d"}, inbox.Event{ID: "e"}); !errors.Is(err, inbox.ErrInFlight) {
			t.Errorf("a batch with a twin: got %v", err)
		}
		wantFirst(t, in, second, "c", "d", "", true)
		must(t, second.exec("do $$ begin if current_setting('lock_timeout') <> '7s' then "+
			"raise 'lock_timeout is %', current_setting('lock_timeout'); end if; end $$"))

		// It waits for the end, whichever that is.
		for _, end := range []string{"rollback", "commit"} {
			done := make(chan error, 1)
			go func() {
				first, err := patient.First(context.Background(), second.Tx, "c", "e", []byte("{}"))
				if err == nil && first != (end == "rollback") {
					err = fmt.Errorf("first: %v", first)
				}
				done <- err
			}()
			waitForLock(t, b)
			if end == "rollback" {
				must(t, holder.Rollback())
			} else {
				must(t, holder.Commit())
			}
			if err := <-done; err != nil {
				t.Errorf("after the twin's %s: %v", end, err)
			}
			must(t, second.Rollback())
			holder, second = b.begin(), b.begin()
			if end == "rollback" {
				wantFirst(t, in, holder, "c", "e", "{}", true)
			}
		}
	})
}

// TestInboxDeadlock: two transactions record two events in opposite order. One is told, and both can go on.
func TestInboxDeadlock(t *testing.T) {
	everywhere(t, func(t *testing.T, b backend) {
		if d, _ := b.where(); d == outbox.SQLite {
			return // there is one writer: no deadlock to be had
		}
		in := newInbox(t, b, 20*time.Second)
		one, two := b.begin(), b.begin()
		wantFirst(t, in, one, "c", "x", "", true)
		wantFirst(t, in, two, "c", "y", "", true)
		answers := make(chan error, 2)
		cross := func(tx transaction, id string) {
			_, err := in.First(context.Background(), tx.Tx, "c", id, nil)
			if errors.Is(err, inbox.ErrInFlight) {
				err = errors.Join(err, tx.exec("select 1"), tx.Rollback())
			}
			answers <- err
		}
		go cross(one, "y")
		go cross(two, "x")
		got := []error{<-answers, <-answers}
		if got[0] == nil {
			slices.Reverse(got)
		}
		if !errors.Is(got[0], inbox.ErrInFlight) || got[1] != nil {
			t.Errorf("got %v; want one that is told, and one that goes on", got)
		}
	})
}

// wantCounts compares what was counted, like "consumer id times".
func wantCounts(t testing.TB, b backend, want ...string) {
	t.Helper()
	got := list(t, b.db, "select consumer || ' ' || event_id || ' ' || times from "+b.table("outbox_inbox_duplicate")+" order by 1")
	if !slices.Equal(got, want) {
		t.Errorf("counted %q, want %q", got, want)
	}
}

// TestInboxCountsDuplicates: once for each time that an event comes again with the same body and the transaction is committed.
func TestInboxCountsDuplicates(t *testing.T) {
	everywhere(t, func(t *testing.T, b backend) {
		in := newInbox(t, b, 0)
		deliver := func(end string, events ...inbox.Event) {
			t.Helper()
			tx := b.begin()
			_, err := in.FirstOf(t.Context(), tx.Tx, "c", events...)
			if err != nil && !errors.Is(err, inbox.ErrDifferentBody) {
				t.Fatal(err)
			}
			if end == "commit" {
				must(t, tx.Commit())
			} else {
				must(t, tx.Rollback())
			}
		}
		event := func(id, body string) inbox.Event { return inbox.Event{ID: id, Body: []byte(body)} }
		a, other := event("a", "1"), event("a", "2")

		deliver("commit", a)
		wantCounts(t, b)
		deliver("commit", a)
		wantCounts(t, b, "c a 1")
		deliver("rollback", a)
		deliver("commit", other)
		wantCounts(t, b, "c a 1")
		deliver("commit", a, event("b", "1"), event("b", "1"), a, event("b", "2"), event("d", "1"))
		wantCounts(t, b, "c a 3", "c b 1")
		deliver("commit", event("d", "2"), other, other, a, event("b", "1"))
		wantCounts(t, b, "c a 3", "c b 2")

		tx := b.begin()
		wantFirst(t, in, tx, "another", "a", "1", true)
		wantFirst(t, in, tx, "another", "a", "1", false)
		must(t, tx.exec("savepoint undone"))
		wantFirst(t, in, tx, "another", "a", "1", false)
		must(t, tx.exec("rollback to savepoint undone"))
		must(t, tx.Commit())
		wantCounts(t, b, "another a 1", "c a 3", "c b 2")
	})
}

// TestInboxDuplicateTwin: the second of two open transactions with the same duplicate waits for the first, for a bounded time.
// The transaction that is told is as good as before, and nothing of the batch was recorded or counted.
func TestInboxDuplicateTwin(t *testing.T) {
	everywhere(t, func(t *testing.T, b backend) {
		if d, _ := b.where(); d == outbox.SQLite {
			return // there is one writer: TestInboxTwin has it
		}
		in, patient := newInbox(t, b, 100*time.Millisecond), newInbox(t, b, 20*time.Second)
		tx := b.begin()
		wantFirst(t, in, tx, "c", "e", "", true)
		must(t, tx.Commit())
		for _, end := range []string{"rollback", "commit"} {
			holder, second := b.begin(), b.begin()
			wantFirst(t, in, holder, "c", "e", "", false)
			must(t, second.exec("set local lock_timeout = '7s'"))
			_, err := in.FirstOf(t.Context(), second.Tx, "c", inbox.Event{ID: "e"}, inbox.Event{ID: end})
			if !errors.Is(err, inbox.ErrInFlight) {
				t.Errorf("while the twin is open: got %v, want ErrInFlight", err)
			}
			wantFirst(t, in, second, "c", end, "", true)
			must(t, second.exec("do $$ begin if current_setting('lock_timeout') <> '7s' then "+
				"raise 'lock_timeout is %', current_setting('lock_timeout'); end if; end $$"))
			done := make(chan error, 1)
			go func() {
				first, err := patient.First(context.Background(), second.Tx, "c", "e", nil)
				if err == nil && first {
					err = errors.New("it is the first time")
				}
				done <- err
			}()
			waitForLock(t, b)
			if end == "rollback" {
				must(t, holder.Rollback())
			} else {
				must(t, holder.Commit())
			}
			must(t, <-done)
			must(t, second.Commit())
		}
		wantCounts(t, b, "c e 3")
	})
}

// TestInboxCountsAtOnce: batches of the same events, known and new, in any order, from several sides. Nobody meets a deadlock,
// and every duplicate of a batch that was committed is counted.
func TestInboxCountsAtOnce(t *testing.T) {
	const workers, batches, size = 4, 25, 20
	everywhere(t, func(t *testing.T, b backend) {
		in := newInbox(t, b, 20*time.Second)
		deliver := func(rng *rand.Rand, oldest int) error {
			tx := b.begin()
			defer func() { _ = tx.Rollback() }()
			var events []inbox.Event
			for _, n := range rng.Perm(size) {
				events = append(events, inbox.Event{ID: fmt.Sprintf("e%d", oldest+n)})
			}
			if _, err := in.FirstOf(context.Background(), tx.Tx, "c", events...); err != nil {
				return err
			}
			return tx.Commit()
		}
		var wg sync.WaitGroup
		for worker := range uint64(workers) {
			wg.Go(func() {
				rng := rand.New(rand.NewPCG(2, worker))
				for n := range batches {
					if err := deliver(rng, n*size/4); err != nil { // three quarters of a batch are in the one before
						t.Errorf("worker %d: %v", worker, err)
						return
					}
				}
			})
		}
		wg.Wait()
		var handled, counted int
		query(t, b.db, &handled, "select count(*) from "+b.table("outbox_inbox"))
		query(t, b.db, &counted, "select sum(times) from "+b.table("outbox_inbox_duplicate"))
		if handled+counted != workers*batches*size {
			t.Errorf("%d are handled and %d counted, want %d together", handled, counted, workers*batches*size)
		}
	})
}

// waitForLock returns when somebody waits for another transaction.
func waitForLock(t testing.TB, b backend) {
	t.Helper()
	for range 1000 {
		var waiting int
		query(t, b.db, &waiting, "select count(*) from pg_locks where not granted and pid in "+
			"(select pid from pg_stat_activity where datname = current_database())")
		if waiting > 0 {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatal("nobody waits")
}

func fileOf(t testing.TB, db queryer) (file string) {
	t.Helper()
	query(t, db, &file, "select file from pragma_database_list where name = 'main'")
	return file
}

func TestGuard(t *testing.T) {
	everywhere(t, func(t *testing.T, b backend) {
		in := newInbox(t, b, 0)
		tx := b.begin()
		for _, step := range []struct {
			jump     bool
			kind, id string
			version  int64
			want     inbox.Verdict
		}{
			{false, "case", "1", 2, inbox.Gap},
			{false, "case", "1", 1, inbox.Apply},
			{false, "case", "1", 1, inbox.Stale},
			{false, "case", "1", 3, inbox.Gap},
			{false, "case", "1", 2, inbox.Apply},
			{false, "case", "1", 3, inbox.Apply},
			{false, "case", "1", 2, inbox.Stale},
			{true, "case", "1", 3, inbox.Stale},
			{true, "case", "1", 10, inbox.Apply},
			{false, "case", "1", 9, inbox.Stale},
			{false, "case", "1", 11, inbox.Apply},
			{true, "case", "2", 1 << 62, inbox.Apply},
			{false, "case", "2", 1<<62 + 1, inbox.Apply},
			{false, "", "1", 1, inbox.Apply},
			{false, "", "none", 1 << 62, inbox.Gap},
		} {
			ask := in.Guard
			if step.jump {
				ask = in.Jump
			}
			if got, err := ask(t.Context(), tx.Tx, "c", step.kind, step.id, step.version); err != nil || got != step.want {
				t.Errorf("%+v: got %v, %v", step, got, err)
			}
		}
		if got, err := in.Guard(t.Context(), tx.Tx, "another", "case", "1", 1); err != nil || got != inbox.Apply {
			t.Errorf("another consumer: got %v, %v", got, err)
		}
		if _, err := in.Guard(t.Context(), tx.Tx, "c", "case", "", 0); err == nil ||
			!strings.Contains(err.Error(), "count from 1") || !strings.Contains(err.Error(), "aggregate id is empty") {
			t.Errorf("bad input: got %v, want both problems", err)
		}
		must(t, tx.Rollback())
		if got := list(t, b.db, "select aggregate_id from "+b.table("outbox_inbox_version")); len(got) != 0 {
			t.Errorf("after the rollback the guard holds %v", got)
		}
	})
}

// errHandler stands for whatever a handler runs into.
var errHandler = errors.New("the handler has failed")

// TestHandledOnce delivers events from several sides at once, again and again, in any order, to a handler that fails and panics:
// each is handled once, and the versions of an aggregate never go back.
func TestHandledOnce(t *testing.T) {
	const aggregates, versions, workers = 4, 15, 4
	everywhere(t, func(t *testing.T, b backend) {
		in := newInbox(t, b, 0)
		run(t, b.db, "create table handled (n "+serial(b)+", aggregate text, version bigint)")
		deliver := func(rng *rand.Rand, aggregate, version int) (err error) {
			tx := b.begin()
			defer func() {
				if recover() != nil {
					err = errHandler
				}
				if err != nil {
					_ = tx.Rollback()
				}
			}()
			id := fmt.Sprintf("%d/%d", aggregate, version)
			first, err := in.First(context.Background(), tx.Tx, "c", id, []byte(id))
			if err != nil {
				return err
			}
			if first {
				verdict, err := in.Guard(context.Background(), tx.Tx, "c", "a", fmt.Sprint(aggregate), int64(version))
				if err != nil || verdict != inbox.Apply {
					return fmt.Errorf("%v: %w", verdict, errors.Join(err, errHandler))
				}
				if err := tx.exec(fmt.Sprintf("insert into handled (aggregate, version) values ('%d', %d)", aggregate, version)); err != nil {
					return err
				}
				switch rng.IntN(6) {
				case 0:
					return errHandler
				case 1:
					panic("the handler is broken")
				}
			}
			return tx.Commit()
		}
		var wg sync.WaitGroup
		for worker := range uint64(workers) {
			wg.Go(func() {
				rng := rand.New(rand.NewPCG(1, worker))
				open := rng.Perm(aggregates * versions)
				for rounds := 0; len(open) > 0; rounds++ {
					open = slices.DeleteFunc(open, func(n int) bool { return deliver(rng, n%aggregates, n/aggregates+1) == nil })
					if rounds > 10_000 {
						t.Errorf("worker %d does not get on: %d are left", worker, len(open))
						return
					}
				}
			})
		}
		wg.Wait()
		var want []string
		for version := range versions {
			want = append(want, fmt.Sprint(version+1))
		}
		for aggregate := range aggregates {
			got := list(t, b.db, fmt.Sprintf("select version from handled where aggregate = '%d' order by n", aggregate))
			if !slices.Equal(got, want) {
				t.Errorf("aggregate %d: handled versions %v, want %v", aggregate, got, want)
			}
		}
	})
}

// serial is a column that counts the rows.
func serial(b backend) string {
	if d, _ := b.where(); d == outbox.SQLite {
		return "integer primary key"
	}
	return "serial"
}

func TestInboxPrune(t *testing.T) {
	everywhere(t, func(t *testing.T, b backend) {
		in := newInbox(t, b, 0)
		tx := b.begin()
		for i := range 7 {
			wantFirst(t, in, tx, "c", fmt.Sprint(i), "", true)
		}
		must(t, tx.Commit())
		earlier := "handled_at - interval '2 hours'"
		if d, _ := b.where(); d == outbox.SQLite {
			earlier = "handled_at - 7200000000"
		}
		run(t, b.db, "update "+b.table("outbox_inbox")+" set handled_at = "+earlier+" where event_id < '5'")
		for _, want := range []int{2, 2, 1, 0} {
			tx := b.begin()
			if got, err := in.Prune(t.Context(), tx.Tx, time.Hour, 2); err != nil || got != want {
				t.Errorf("Prune = %d, %v; want %d", got, err, want)
			}
			must(t, tx.Commit())
		}
		if got := list(t, b.db, "select event_id from "+b.table("outbox_inbox")+" order by 1"); !slices.Equal(got, []string{"5", "6"}) {
			t.Errorf("the inbox holds %v, want what is younger", got)
		}
		run(t, b.db, "insert into "+b.table("outbox_inbox_duplicate")+" (consumer, event_id, times) values "+
			"('c', 'a', 1), ('c', 'b', 2), ('c', 'd', 3), ('c', 'young', 4)")
		run(t, b.db, "update "+b.table("outbox_inbox_duplicate")+" set last_at = "+strings.Replace(earlier, "handled_at", "last_at", 1)+
			" where event_id < 'e'")
		for _, want := range []int{2, 1, 0} {
			tx := b.begin()
			if got, err := in.Prune(t.Context(), tx.Tx, time.Hour, 2); err != nil || got != want {
				t.Errorf("Prune of counts = %d, %v; want %d", got, err, want)
			}
			must(t, tx.Commit())
		}
		wantCounts(t, b, "c young 4")
		tx = b.begin()
		wantFirst(t, in, tx, "c", "0", "another body", true) // beyond the window
		if _, err := in.Prune(t.Context(), tx.Tx, 0, 0); err == nil {
			t.Error("Prune took an age of 0")
		}
	})
}

// TestInboxHints: what to do is said where the tables are missing, and the options' problems are told at once.
func TestInboxHints(t *testing.T) {
	everywhere(t, func(t *testing.T, b backend) {
		d, schemaName := b.where()
		drop := "drop table outbox_inbox"
		if d == outbox.Postgres {
			drop = "drop schema " + `"Integration ""q"" 'l' $outbox$ \ ü; drop"` + " cascade"
		}
		run(t, b.db, drop)
		in, err := inbox.New(d, inbox.Options{Schema: schemaName})
		must(t, err)
		if _, err := in.First(t.Context(), b.begin().Tx, "c", "e", nil); err == nil || !strings.Contains(err.Error(), "pillarbox migrate") {
			t.Errorf("without tables: got %v, want a hint", err)
		}
	})
	_, err := inbox.New(outbox.Postgres, inbox.Options{Schema: "pg_x", Wait: time.Hour})
	if err == nil || !strings.Contains(err.Error(), "pg_x") || !strings.Contains(err.Error(), "option Wait is 1h") {
		t.Errorf("bad options: got %v, want both problems", err)
	}
}
