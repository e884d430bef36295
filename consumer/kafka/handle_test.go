package kafka

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/pillarbox-dev/pillarbox/outbox"
)

// letters returns the dead letters.
func (w *world) letters(n int) []*kgo.Record {
	w.t.Helper()
	return w.cluster.Records(w.t, w.topic+".dead-letter", n)
}

func TestHandlesInOrderAndOnce(t *testing.T) {
	w := newWorld(t, 2)
	w.send(0, "a", "b", "a", "c", "b", "d")
	r := w.start(nil)
	w.awaitHandled(4)
	eventually(t, "all counted", func() bool { s := r.Stats(); return s.Handled == 4 && s.Duplicates == 2 })
	eventually(t, "lag 0", func() bool {
		p := r.Stats().Partitions
		return len(p) == 2 && p[0].Lag == 0 && p[0].Next == 6 && p[0].End == 6
	})
	eventually(t, "offset committed while it runs", func() bool { return w.committed() == 6 })
	r.stop()
	w.wantHandled("a", "b", "c", "d")

	w.send(0, "e")
	r = w.start(func(c *Config[*sql.Tx]) { c.CommitInterval = time.Minute })
	w.awaitHandled(5)
	r.stop()
	if got := w.committed(); got != 7 {
		t.Errorf("the stop committed offset %d, want 7", got)
	}
	if s := r.Stats(); s.Handled != 1 || s.Duplicates != 0 {
		t.Errorf("after a clean stop: %+v, want only the new event", s)
	}
	w.wantHandled("a", "b", "c", "d", "e")
	if err := r.Run(t.Context()); err == nil {
		t.Error("a second Run began")
	}
}

func TestPgx(t *testing.T) {
	w := newWorld(t, 1)
	pool, err := pgxpool.New(t.Context(), w.url)
	must(t, err)
	defer pool.Close()
	sqlConfig := w.config()
	var calls atomic.Int64
	consumer, err := New(Config[pgx.Tx]{
		Brokers: sqlConfig.Brokers, Topics: sqlConfig.Topics, Group: w.group, Inbox: w.box, Begin: outbox.BeginPgx(pool),
		RetryMin: 10 * time.Millisecond, Batch: 10, Log: sqlConfig.Log,
		Handle: func(ctx context.Context, tx pgx.Tx, m Message) error {
			if _, err := tx.Exec(ctx, "insert into handled (event_id, topic, part, pos) values ($1, $2, $3, $4)",
				m.EventID, m.Topic, m.Partition, m.Offset); err != nil {
				return err
			}
			if calls.Add(1) == 2 {
				_, _ = tx.Exec(ctx, "select no_such_column") // swallowed: the commit turns into a rollback
			}
			return nil
		},
	})
	must(t, err)
	w.send(0, "a", "b", "c", "b")
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- consumer.Run(ctx) }()
	w.awaitHandled(3)
	eventually(t, "the duplicate", func() bool { return consumer.Stats().Duplicates == 1 })
	cancel()
	must(t, <-done)
	w.wantHandled("a", "b", "c")
}

// TestPoison: what fails is tried again with a growing wait and ends as a dead letter; its partition waits, the other goes on.
func TestPoison(t *testing.T) {
	w := newWorld(t, 2)
	release := make(chan struct{})
	poison := w.record(0, "poison")
	poison.Headers = append(poison.Headers, kgo.RecordHeader{Key: "deadLetterCode", Value: []byte("OLD")})
	w.produce(w.record(0, "before"), poison, w.record(0, "after"))
	var mu sync.Mutex
	var attempts []time.Time
	r := w.start(func(c *Config[*sql.Tx]) {
		c.MaxAttempts, c.RetryMin, c.Batch = 4, 50*time.Millisecond, 10
		c.Handle = func(ctx context.Context, tx *sql.Tx, m Message) error {
			if err := handle(ctx, tx, m); err != nil || m.EventID != "poison" {
				return err
			}
			mu.Lock()
			attempts = append(attempts, time.Now())
			n := len(attempts)
			mu.Unlock()
			if n == 4 {
				<-release
			}
			return fmt.Errorf("no account %s", strings.Repeat("é", 2000))
		}
	})
	eventually(t, "the partition to wait", func() bool {
		p := r.Stats().Partitions
		return len(p) == 2 && p[0].Blocked == CodeHandler && p[0].Lag == 2 && p[1].Blocked == ""
	})
	w.send(1, ids("other", 50)...)
	w.awaitHandled(51) // with the one before the poison
	close(release)
	letter := w.letters(1)[0]
	w.awaitHandled(52)
	eventually(t, "offset behind the poison", func() bool { return w.committed() == 3 })
	r.stop()

	got := headers(letter)
	for name, want := range map[string]string{
		"eventId": "poison", "eventType": "Tested", HeaderCode: CodeHandler, HeaderAttempts: "4", HeaderTopic: w.topic, HeaderPartition: "0",
		HeaderOffset: "1", HeaderConsumer: w.group,
	} {
		if got[name] != want {
			t.Errorf("header %s is %q, want %q", name, got[name], want)
		}
	}
	if reason := got[HeaderReason]; !strings.HasPrefix(reason, "no account é") || len(reason) > maxReason || len(letter.Headers) != 10 {
		t.Errorf("reason of %d bytes, %d headers: %q", len(reason), len(letter.Headers), letter.Headers)
	}
	if string(letter.Value) != `"poison"` || string(letter.Key) != "k" {
		t.Errorf("the dead letter is %q %q", letter.Key, letter.Value)
	}
	attempts = attempts[1:] // the first was in a batch
	for i, least := range []time.Duration{50, 100} {
		if waited := attempts[i+1].Sub(attempts[i]); waited < least*time.Millisecond {
			t.Errorf("attempt %d after %v, want at least %vms", i+2, waited, least)
		}
	}
	if s := r.Stats(); s.DeadLettered != 1 || s.Failed != 3 {
		t.Errorf("got %+v, want 1 dead letter and 3 failed attempts before", s)
	}
	if n := w.number("select count(*) from handled where event_id = 'poison'"); n > 0 {
		t.Errorf("the poison left %d rows", n)
	}
	if n := w.number("select count(*) from outbox_inbox where event_id = 'poison'"); n > 0 {
		t.Errorf("the poison left %d inbox rows", n)
	}
}

// TestFailedHandlerLeavesNothing: whatever way a handler fails, neither its changes nor the inbox's record stay, and the
// next attempt is the first.
func TestFailedHandlerLeavesNothing(t *testing.T) {
	for name, fail := range map[string]func(ctx context.Context) error{
		CodePanic:   func(context.Context) error { panic("a secret place") },
		CodeHandler: func(context.Context) error { return errors.New("no") },
		CodeTimeout: func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() },
		CodeTryAgain: func(context.Context) error {
			return TryAgain(30*time.Millisecond, errors.New("not yet"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 1)
			w.send(0, "a", "b")
			var calls atomic.Int64
			var codes sync.Map
			r := w.start(func(c *Config[*sql.Tx]) {
				c.HandleTimeout, c.MaxAttempts = 2*time.Second, 2
				c.Observe = func(r Result) { codes.Store(r.Code, r.Kind) }
				c.Handle = func(ctx context.Context, tx *sql.Tx, m Message) error {
					if err := handle(ctx, tx, m); err != nil || m.EventID != "a" || calls.Add(1) > 1 {
						return err
					}
					return fail(ctx)
				}
			})
			eventually(t, "the failure", func() bool { _, ok := codes.Load(name); return ok })
			w.awaitHandled(2)
			r.stop()
			w.wantHandled("a", "b")
			if calls.Load() < 2 || r.Stats().DeadLettered > 0 {
				t.Errorf("%d calls, %+v", calls.Load(), r.Stats())
			}
		})
	}
}

// TestRejectedAtOnce: what will never be handled is not tried again.
func TestRejectedAtOnce(t *testing.T) {
	w := newWorld(t, 1)
	nameless, tombstone, other := w.record(0, ""), w.record(0, "tombstone"), w.record(0, "a")
	nameless.Headers = nameless.Headers[1:]
	tombstone.Value = nil
	other.Value = []byte(`"another body"`)
	w.produce(w.record(0, "a"), nameless, other, w.record(0, "rejected"), tombstone)
	r := w.start(func(c *Config[*sql.Tx]) {
		c.Batch = 5
		c.Handle = func(ctx context.Context, tx *sql.Tx, m Message) error {
			if m.EventID == "rejected" {
				return fmt.Errorf("booking: %w", Reject("NO_ACCOUNT", errors.New("no such account")))
			}
			if m.EventID == "tombstone" && m.Value != nil {
				return fmt.Errorf("a tombstone with the value %q", m.Value)
			}
			return handle(ctx, tx, m)
		}
	})
	letters := w.letters(3)
	w.awaitHandled(2)
	r.stop()
	for i, want := range []string{CodeNoEventID + " 1", CodeDifferentBody + " 2", "NO_ACCOUNT 3"} {
		if h := headers(letters[i]); h[HeaderCode]+" "+h[HeaderOffset] != want || h[HeaderAttempts] != "1" {
			t.Errorf("dead letter %d is %q, want %s", i, h, want)
		}
	}
	w.wantHandled("a", "tombstone")
}

// TestTryAgainCostsNothing: what is not the message's fault is tried more often than MaxAttempts.
func TestTryAgainCostsNothing(t *testing.T) {
	w := newWorld(t, 1)
	twin, err := w.db.BeginTx(t.Context(), nil) // a former owner of the partition, still at it
	must(t, err)
	_, err = w.box.First(t.Context(), twin, w.group, "a", []byte(`"a"`))
	must(t, err)
	w.send(0, "a", "b")
	var calls atomic.Int64
	r := w.start(func(c *Config[*sql.Tx]) {
		c.MaxAttempts = 1
		c.Handle = func(ctx context.Context, tx *sql.Tx, m Message) error {
			if m.EventID == "b" && calls.Add(1) < 6 {
				return TryAgain(0, nil)
			}
			return handle(ctx, tx, m)
		}
	})
	eventually(t, "IN_FLIGHT", func() bool { s := r.Stats(); return len(s.Partitions) > 0 && s.Partitions[0].Blocked == CodeInFlight })
	must(t, twin.Rollback())
	w.awaitHandled(2)
	r.stop()
	w.wantHandled("a", "b")
	if s := r.Stats(); s.Failed+s.DeadLettered > 0 || s.Unavailable < 6 {
		t.Errorf("got %+v, want attempts that were not counted alone", s)
	}
}

// TestBatchesShareATransaction, and a failure in one is found by handling its messages one by one.
func TestBatchesShareATransaction(t *testing.T) {
	w := newWorld(t, 1)
	all := ids("e", 300)
	w.send(0, all...)
	w.exec("create table xacts (id text)")
	r := w.start(func(c *Config[*sql.Tx]) {
		c.Batch, c.MaxAttempts = 100, 1
		c.Handle = func(ctx context.Context, tx *sql.Tx, m Message) error {
			if m.EventID == "e250" {
				return errors.New("no")
			}
			if _, err := tx.ExecContext(ctx, "insert into xacts values (pg_current_xact_id()::text)"); err != nil {
				return err
			}
			return handle(ctx, tx, m)
		}
	})
	w.awaitHandled(299)
	w.letters(1)
	r.stop()
	w.wantHandled(append(all[:250:250], all[251:]...)...)
	if n := w.number("select count(distinct id) from xacts"); n > 150 {
		t.Errorf("299 messages took %d transactions, want batches and the failed one's messages alone", n)
	}
}

// TestPartitionsSideBySide: a slow partition does not hold up the other, and no more transactions are open than are allowed.
func TestPartitionsSideBySide(t *testing.T) {
	w := newWorld(t, 4)
	for p := range int32(4) {
		w.send(p, ids(fmt.Sprint("p", p, "-"), 20)...)
	}
	var open, most atomic.Int64
	r := w.start(func(c *Config[*sql.Tx]) {
		c.Concurrency = 2
		c.Handle = func(ctx context.Context, tx *sql.Tx, m Message) error {
			defer open.Add(-1)
			n := open.Add(1)
			for old := most.Load(); n > old && !most.CompareAndSwap(old, n); old = most.Load() {
			}
			time.Sleep(5 * time.Millisecond)
			return handle(ctx, tx, m)
		}
	})
	w.awaitHandled(80)
	r.stop()
	if most.Load() != 2 {
		t.Errorf("%d transactions were open at once, want 2", most.Load())
	}
	if n := w.number(`select count(*) from (select pos, lag(pos) over (partition by part order by seq) before from handled) x
where before is not null and pos <> before + 1`); n > 0 {
		t.Errorf("%d messages out of their partition's order", n)
	}
}

// TestMemoryIsBounded: a partition that waits takes no more than its queue and one fetch.
func TestMemoryIsBounded(t *testing.T) {
	w := newWorld(t, 1)
	const total, chunk = 1500, 20
	for all := range slices.Chunk(ids("e", total), chunk) {
		w.send(0, all...) // a record batch
	}
	release := make(chan struct{})
	r := w.start(func(c *Config[*sql.Tx]) {
		c.QueueRecords, c.Batch, c.HandleTimeout, c.FetchPartitionBytes = 100, 50, time.Hour, 4<<10
		c.Handle = func(ctx context.Context, tx *sql.Tx, m Message) error { <-release; return handle(ctx, tx, m) }
	})
	eventually(t, "a full queue", func() bool { s := r.Stats(); return len(s.Partitions) == 1 && s.Partitions[0].Queued >= 100 })
	time.Sleep(2 * fetchWait)
	if got := r.Stats().Partitions[0]; got.Queued > 100+5*chunk || got.Lag != total {
		t.Errorf("got %+v, want at most a queue of 100 and a fetch of 4 KiB", got)
	}
	close(release)
	w.awaitHandled(total)
	r.stop()
	w.wantHandled(ids("e", total)...)
}

// TestLogsHoldNoValues: a value may hold anything.
func TestLogsHoldNoValues(t *testing.T) {
	w := newWorld(t, 1)
	var log lockedBuilder
	w.send(0, "p4ssw0rd")
	r := w.start(func(c *Config[*sql.Tx]) {
		c.MaxAttempts, c.EventIDHeader = 2, "eventType"
		c.Log = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
		c.Handle = func(context.Context, *sql.Tx, Message) error { return errors.New("no") }
	})
	w.letters(1)
	r.stop()
	if text := log.String(); strings.Contains(text, "p4ssw0rd") || !strings.Contains(text, "event_id=Tested") || !strings.Contains(text, "offset=0") {
		t.Errorf("logged %s", text)
	}
}

// lockedBuilder is a strings.Builder for several goroutines.
type lockedBuilder struct {
	mu   sync.Mutex
	text strings.Builder
}

func (b *lockedBuilder) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *lockedBuilder) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}
