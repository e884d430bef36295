package postgres_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/pillarbox-dev/pillarbox/relay"
	"github.com/pillarbox-dev/pillarbox/store/postgres"
)

// TestEveryCommittedEventIsReadOnce is the first promise of the log: 24 writers commit in any order and in every way there
// is, and the relay's cursor reads each committed event once, and those of a key in order. A reader that remembers just the
// last number runs beside it and must lose some: otherwise the writers were too tame to prove anything.
//
// The first time, numbers that were rolled back are given up while the writers go on: none may be given up too early. The
// second time a transaction is open all the while, so that none can be given up, and nothing may wait for it.
func TestEveryCommittedEventIsReadOnce(t *testing.T) {
	t.Run("alone", func(t *testing.T) {
		run := startGapRun(t)
		run.write(t)
		run.readAll(t, 0)
		run.check(t)
		if run.reader.deadWhileWriting == 0 {
			t.Error("no number was given up while the writers went on")
		}
	})
	t.Run("beside a long transaction", func(t *testing.T) {
		run := startGapRun(t)
		long := beginLong(t, run.url) // its number is the lowest
		run.write(t)
		run.readAll(t, relay.MaxGaps)
		run.check(t)
		if err := long.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
		run.log.add([]string{"long"})
		run.readAll(t, 0)
		run.check(t)
		if last := run.reader.events[len(run.reader.events)-1].ID; last != "long" {
			t.Errorf("the last event is %s, want that of the long transaction", last)
		}
	})
}

// gapRun is a database, its writers and its two readers.
type gapRun struct {
	url    string
	log    committedLog
	reader *cursorReader
	naive  *naiveReader
}

func startGapRun(t *testing.T) *gapRun {
	t.Helper()
	url := database(t)
	conn := connect(t, url)
	exec(t, conn, "create table aggregate (key text primary key, version bigint not null default 0)")
	exec(t, conn, "insert into aggregate (key) select 'key-' || i from generate_series(0, 19) i")
	run := &gapRun{
		url:    url,
		reader: &cursorReader{store: open(t, postgres.Config{URL: url}), cursor: relay.NewCursor(0, nil)},
		naive:  &naiveReader{conn: connect(t, url), seen: map[string]bool{}},
	}
	run.reader.acquire(t)
	return run
}

// write lets 24 writers do everything five times, and both readers read meanwhile.
func (r *gapRun) write(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var readers, writers sync.WaitGroup
	stop := make(chan struct{})
	readers.Go(func() { r.naive.run(t, ctx, stop) })
	readers.Go(func() { r.reader.run(t, ctx, stop) })
	for i := range 24 {
		w := &writer{conn: connect(t, r.url), name: fmt.Sprint("writer-", i), chance: rand.New(rand.NewPCG(uint64(i), 7))}
		writers.Go(func() {
			for n := range 5 * len(kinds) {
				kind := kinds[(n+i)%len(kinds)]
				ids, err := kind.run(ctx, w)
				if err != nil {
					t.Errorf("%s: %v", kind.name, err)
					return
				}
				r.log.add(ids)
			}
		})
	}
	writers.Wait()
	close(stop)
	readers.Wait()
	if t.Failed() {
		t.FailNow()
	}
	r.reader.deadWhileWriting = r.reader.dead
}

// readAll reads until everything committed was read and no more than some gaps are left, or nothing is left at all.
func (r *gapRun) readAll(t *testing.T, gapsLeft int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	for {
		found, gaps, err := r.reader.next(ctx)
		if err != nil {
			t.Fatalf("%v; %d gaps are left", err, gaps)
		}
		if !found && (gaps == 0 || gaps <= gapsLeft && len(r.reader.events) >= len(r.log.ids)) {
			return
		}
	}
}

func (r *gapRun) check(t *testing.T) {
	t.Helper()
	missing := 0
	for _, id := range r.log.ids {
		if !r.naive.seen[id] {
			missing++
		}
	}
	if missing == 0 || r.reader.filled == 0 {
		t.Error("a reader of seq > last lost nothing: the writers are too tame for this test")
	}
	r.reader.check(t, r.log.ids)
	t.Logf("%d events committed, %d of them late; %d numbers rolled back, %d known while writing; a reader of seq > last lost %d",
		len(r.log.ids), r.reader.filled, r.reader.dead, r.reader.deadWhileWriting, missing)
}

// beginLong starts the transaction that is open all the while.
func beginLong(t *testing.T, url string) pgx.Tx {
	t.Helper()
	tx, err := connect(t, url).Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), insertPlain, "long", "", 0); err != nil {
		t.Fatal(err)
	}
	return tx
}

// committedLog collects the ids of what was committed.
type committedLog struct {
	mu  sync.Mutex
	ids []string
}

func (l *committedLog) add(ids []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ids = append(l.ids, ids...)
}

// cursorReader reads as a unit of the relay does.
type cursorReader struct {
	store  *postgres.Store
	lease  relay.LeaseID
	cursor *relay.Cursor
	events []*relay.Event

	filled, dead, deadWhileWriting int64
}

func (r *cursorReader) acquire(t *testing.T) {
	t.Helper()
	lease, ok, err := r.store.Acquire(t.Context(), relay.AcquireRequest{Destination: "d", Owner: "o", TTL: time.Minute})
	if err != nil || !ok {
		t.Fatalf("acquire: %v, %v", ok, err)
	}
	r.lease = lease.LeaseID
}

func (r *cursorReader) run(t *testing.T, ctx context.Context, stop <-chan struct{}) {
	for {
		select {
		case <-stop:
			return
		default:
		}
		if _, _, err := r.next(ctx); err != nil {
			t.Error(err)
			return
		}
	}
}

// next reads a page and settles. It tells whether it found anything, and how many gaps are left.
func (r *cursorReader) next(ctx context.Context) (found bool, gaps int, err error) {
	after, asked := r.cursor.Ask()
	page, err := r.store.Read(ctx, relay.Query{After: after, Gaps: asked, Limit: 300, MaxBytes: 1 << 20})
	if err != nil {
		return false, 0, err
	}
	seen := r.cursor.Saw(page)
	r.filled, r.dead = r.filled+int64(seen.Filled), r.dead+seen.Dead
	for _, e := range page.Events {
		r.events = append(r.events, e)
		r.cursor.Done(e.Seq)
	}
	mark := r.cursor.Mark()
	position, owed := r.cursor.State()
	settled, err := r.store.Settle(ctx, r.lease, relay.Settlement{Position: position, Gaps: owed})
	r.cursor.Bind(mark, settled.Bound)
	return len(page.Seqs)+len(page.GapSeqs) > 0, len(owed), err
}

// check compares what was read with what was committed, and the versions of each key with the order of reading.
func (r *cursorReader) check(t *testing.T, committed []string) {
	t.Helper()
	times := map[string]int{}
	version := map[string]int64{}
	for _, e := range r.events {
		times[e.ID]++
		if e.Key == "" {
			continue
		}
		if e.AggregateVersion != version[e.Key]+1 {
			t.Errorf("version %d of %s was read after version %d", e.AggregateVersion, e.Key, version[e.Key])
		}
		version[e.Key] = e.AggregateVersion
	}
	for _, id := range committed {
		if times[id] != 1 {
			t.Errorf("event %s was committed and read %d times", id, times[id])
		}
		delete(times, id)
	}
	for id := range times {
		t.Errorf("event %s was read and never committed", id)
	}
}

// naiveReader remembers the last number that it saw.
type naiveReader struct {
	conn *pgx.Conn
	last int64
	seen map[string]bool
}

func (r *naiveReader) run(t *testing.T, ctx context.Context, stop <-chan struct{}) {
	for stopped := false; ; {
		rows, err := r.conn.Query(ctx, "select seq, event_id from outbox_event where seq > $1 order by seq limit 300", r.last)
		if err != nil {
			t.Error(err)
			return
		}
		var id string
		n := 0
		if _, err := pgx.ForEachRow(rows, []any{&r.last, &id}, func() error { n++; r.seen[id] = true; return nil }); err != nil {
			t.Error(err)
			return
		}
		if stopped && n == 0 {
			return
		}
		select {
		case <-stop:
			stopped = true
		default:
		}
	}
}

// writer is one producer. Its methods return the ids of what they committed.
type writer struct {
	conn   *pgx.Conn
	name   string
	number int
	chance *rand.Rand
}

func (w *writer) id() string {
	w.number++
	return fmt.Sprintf("%s-%d", w.name, w.number)
}

func (w *writer) pause() { time.Sleep(time.Duration(w.chance.IntN(4)) * time.Millisecond) }

const (
	insertPlain = `insert into outbox_event (event_id, topic_name, partition_key, event_type, aggregate_version)
		values ($1, 't', $2, 'T', $3)`
	insertMany = `insert into outbox_event (event_id, topic_name, event_type)
		select $1 || '/' || i, 't', 'T' from generate_series(1, $2::integer) i`
	nextVersion = `update aggregate set version = version + 1 where key = $1 returning version`
)

// querier is a connection or a transaction.
type querier interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// change updates an aggregate, which is what serialises the writers of a key, and writes its event.
func (w *writer) change(ctx context.Context, tx querier, key string) (id string, err error) {
	var version int64
	if err := tx.QueryRow(ctx, nextVersion, key).Scan(&version); err != nil {
		return "", err
	}
	w.pause()
	id = w.id()
	_, err = tx.Exec(ctx, insertPlain, id, key, version)
	return id, err
}

func (w *writer) key() string { return fmt.Sprint("key-", w.chance.IntN(20)) }

// many are the ids that insertMany writes.
func many(id string, n int) []string {
	ids := make([]string, n)
	for i := range ids {
		ids[i] = fmt.Sprintf("%s/%d", id, i+1)
	}
	return ids
}

// inTx runs f in a transaction. When f returns no ids the transaction is rolled back.
func (w *writer) inTx(ctx context.Context, f func(tx pgx.Tx) (ids []string, err error)) ([]string, error) {
	tx, err := w.conn.Begin(ctx)
	if err != nil {
		return nil, err
	}
	ids, err := f(tx)
	if err != nil || len(ids) == 0 {
		tx.Rollback(ctx)
		return nil, err
	}
	return ids, tx.Commit(ctx)
}

var kinds = [...]struct {
	name string
	run  func(ctx context.Context, w *writer) (committed []string, err error)
}{
	{"one event, committed by itself", func(ctx context.Context, w *writer) ([]string, error) {
		id := w.id()
		_, err := w.conn.Exec(ctx, insertPlain, id, "", 0)
		return []string{id}, err
	}},
	{"a change and its event", func(ctx context.Context, w *writer) ([]string, error) {
		return w.inTx(ctx, func(tx pgx.Tx) ([]string, error) {
			id, err := w.change(ctx, tx, w.key())
			return []string{id}, err
		})
	}},
	{"a number taken early, others after it, a commit later", func(ctx context.Context, w *writer) ([]string, error) {
		return w.inTx(ctx, func(tx pgx.Tx) ([]string, error) {
			first := w.id()
			if _, err := tx.Exec(ctx, insertPlain, first, "", 0); err != nil {
				return nil, err
			}
			w.pause()
			second, err := w.change(ctx, tx, w.key())
			w.pause()
			return []string{first, second}, err
		})
	}},
	{"an xid taken early", func(ctx context.Context, w *writer) ([]string, error) {
		return w.inTx(ctx, func(tx pgx.Tx) ([]string, error) {
			if _, err := tx.Exec(ctx, "select pg_current_xact_id()"); err != nil {
				return nil, err
			}
			time.Sleep(30 * time.Millisecond)
			id, err := w.change(ctx, tx, w.key())
			return []string{id}, err
		})
	}},
	{"a long transaction", func(ctx context.Context, w *writer) ([]string, error) {
		return w.inTx(ctx, func(tx pgx.Tx) ([]string, error) {
			id := w.id()
			_, err := tx.Exec(ctx, insertPlain, id, "", 0)
			time.Sleep(150 * time.Millisecond)
			return []string{id}, err
		})
	}},
	{"a rollback", func(ctx context.Context, w *writer) ([]string, error) {
		return w.inTx(ctx, func(tx pgx.Tx) ([]string, error) {
			_, err := w.change(ctx, tx, w.key())
			return nil, err
		})
	}},
	{"a savepoint that is rolled back, and one that is not", func(ctx context.Context, w *writer) ([]string, error) {
		return w.inTx(ctx, func(tx pgx.Tx) ([]string, error) {
			undone, err := tx.Begin(ctx)
			if err != nil {
				return nil, err
			}
			key := w.key()
			if _, err := w.change(ctx, undone, key); err != nil {
				return nil, err
			}
			if err := undone.Rollback(ctx); err != nil {
				return nil, err
			}
			kept, err := tx.Begin(ctx)
			if err != nil {
				return nil, err
			}
			id, err := w.change(ctx, kept, key)
			if err != nil {
				return nil, err
			}
			return []string{id}, kept.Commit(ctx)
		})
	}},
	{"a prepared transaction", func(ctx context.Context, w *writer) ([]string, error) {
		return w.prepared(ctx, "commit")
	}},
	{"a prepared transaction that is rolled back", func(ctx context.Context, w *writer) ([]string, error) {
		_, err := w.prepared(ctx, "rollback")
		return nil, err
	}},
	{"COPY", func(ctx context.Context, w *writer) ([]string, error) {
		return w.inTx(ctx, func(tx pgx.Tx) ([]string, error) {
			ids := many(w.id(), 20)
			_, err := tx.CopyFrom(ctx, pgx.Identifier{"outbox_event"}, []string{"event_id", "topic_name", "event_type"},
				pgx.CopyFromSlice(len(ids), func(i int) ([]any, error) { return []any{ids[i], "t", "T"}, nil }))
			w.pause()
			return ids, err
		})
	}},
	{"INSERT … SELECT", func(ctx context.Context, w *writer) ([]string, error) {
		return w.inTx(ctx, func(tx pgx.Tx) ([]string, error) {
			id := w.id()
			_, err := tx.Exec(ctx, insertMany, id, 50)
			w.pause()
			return many(id, 50), err
		})
	}},
	{"ON CONFLICT DO NOTHING, which takes numbers for nothing", func(ctx context.Context, w *writer) ([]string, error) {
		return w.inTx(ctx, func(tx pgx.Tx) ([]string, error) {
			id := w.id()
			if _, err := tx.Exec(ctx, insertMany, id, 5); err != nil {
				return nil, err
			}
			_, err := tx.Exec(ctx, insertMany+" on conflict do nothing", id, 8)
			return many(id, 8), err
		})
	}},
	{"a bulk that is rolled back", func(ctx context.Context, w *writer) ([]string, error) {
		return w.inTx(ctx, func(tx pgx.Tx) ([]string, error) {
			_, err := tx.Exec(ctx, insertMany, w.id(), 1000)
			return nil, err
		})
	}},
}

// prepared prepares a transaction, which leaves the session, and ends it later.
func (w *writer) prepared(ctx context.Context, how string) ([]string, error) {
	name := "gap-test-" + w.id()
	if _, err := w.conn.Exec(ctx, "begin"); err != nil {
		return nil, err
	}
	id, err := w.change(ctx, w.conn, w.key())
	if err != nil {
		return nil, err
	}
	if _, err := w.conn.Exec(ctx, fmt.Sprintf("prepare transaction '%s'", name)); err != nil {
		return nil, err
	}
	w.pause()
	_, err = w.conn.Exec(ctx, fmt.Sprintf("%s prepared '%s'", how, name))
	return []string{id}, err
}
