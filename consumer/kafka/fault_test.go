package kafka

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/pillarbox-dev/pillarbox/internal/kafkatest"
	"github.com/pillarbox-dev/pillarbox/internal/pgtest"
)

// TestKilledBetweenCommits: kill -9 after transactions were committed, and before their offsets were. What comes again is known.
func TestKilledBetweenCommits(t *testing.T) {
	for _, batch := range []int{1, 20} {
		t.Run(fmt.Sprint("batch ", batch), func(t *testing.T) {
			t.Parallel() // the dead member's session is waited for
			w := newWorld(t, 1)
			all := ids("e", 100)
			w.send(0, all...)
			w.runUntilKilled(batch, 41)
			before := w.number("select count(*) from handled")
			if before < 41 || before == 100 || w.committed() > 0 {
				t.Fatalf("%d handled and offset %d committed, want it killed on the way", before, w.committed())
			}
			r := w.start(nil)
			w.awaitHandled(100)
			r.stop()
			w.wantHandled(all...)
			if s := r.Stats(); s.Duplicates != uint64(before) || s.Handled != uint64(100-before) {
				t.Errorf("%d were handled before; got %+v", before, s)
			}
			if got := w.committed(); got != 100 {
				t.Errorf("offset %d is committed, want 100", got)
			}
		})
	}
}

// TestDeadLetterTopicAway: its absence holds up the partition with the poison, for as long as it lasts, and nothing else.
func TestDeadLetterTopicAway(t *testing.T) {
	w := newWorld(t, 2)
	letters := w.topic + ".dead-letter"
	client, err := w.cluster.Client()
	must(t, err)
	defer client.Close()
	admin := kadm.NewClient(client)
	remove := func() {
		t.Helper()
		_, err := admin.DeleteTopic(t.Context(), letters)
		must(t, err)
	}
	remove()
	consumer, err := New(w.config())
	must(t, err)
	if err := consumer.Run(t.Context()); err == nil || !strings.Contains(err.Error(), letters) {
		t.Fatalf("Run without a dead-letter topic: %v, want an error that names it", err)
	}

	must(t, w.cluster.CreateTopic(t.Context(), letters, 1, nil))
	r := w.start(func(c *Config[*sql.Tx]) {
		c.MaxAttempts = 1
		c.Handle = func(ctx context.Context, tx *sql.Tx, m Message) error {
			if m.EventID == "poison" {
				return errors.New("no")
			}
			return handle(ctx, tx, m)
		}
	})
	w.send(0, "before")
	w.awaitHandled(1)
	remove()
	w.send(0, "poison", "after")
	eventually(t, "the partition to wait for its dead-letter topic", func() bool {
		s := r.Stats()
		return len(s.Partitions) == 2 && s.Partitions[0].Blocked == CodeDeadLetter
	})
	w.send(1, ids("other", 20)...)
	w.awaitHandled(21)
	if got := w.committed(); got > 1 {
		t.Errorf("offset %d is committed: the poison was dropped", got)
	}
	must(t, w.cluster.CreateTopic(t.Context(), letters, 1, nil))
	if got := headers(w.letters(1)[0])["eventId"]; got != "poison" {
		t.Errorf("the dead letter is %q", got)
	}
	w.awaitHandled(22)
	r.stop()
	if got := w.committed(); got != 3 {
		t.Errorf("offset %d is committed, want 3", got)
	}
}

// TestRestarts: the broker, then the database go away under load and come back. Nothing is lost, dead-lettered or handled
// twice. MaxAttempts is 2, so attempts that are counted show.
func TestRestarts(t *testing.T) {
	t.Parallel() // it waits for brokers to start and groups to form
	cluster, server := kafkatest.New(t, kafkatest.Options{}), pgtest.New(t, pgtest.Options{})
	w := newWorldOn(t, cluster, server, 3)
	const each = 250
	var want []string
	for p := range int32(3) {
		all := ids(fmt.Sprint("p", p, "-"), each)
		want = append(want, all...)
		w.send(p, all...)
	}
	r := w.start(func(c *Config[*sql.Tx]) {
		c.MaxAttempts = 2
		c.Handle = func(ctx context.Context, tx *sql.Tx, m Message) error {
			time.Sleep(5 * time.Millisecond)
			return handle(ctx, tx, m)
		}
	})
	w.awaitHandled(60)
	must(t, cluster.Brokers[0].Kill())
	must(t, cluster.Brokers[0].Up())
	for _, mode := range []pgtest.Mode{pgtest.Fast, pgtest.Immediate} {
		n := r.Stats().Handled
		eventually(t, "more handled", func() bool { return r.Stats().Handled > n+60 })
		must(t, server.Down(mode))
		eventually(t, "it to notice", func() bool {
			return slices.ContainsFunc(r.Stats().Partitions, func(p PartitionStats) bool { return p.Blocked == CodeDatabase })
		})
		must(t, server.Up())
	}
	w.awaitHandled(3 * each)
	r.stop()
	got := w.list("select event_id from handled order by event_id")
	if !slices.Equal(got, want) {
		t.Errorf("%d rows of handled events, want each of %d once", len(got), len(want))
	}
	if s := r.Stats(); s.DeadLettered+s.Failed > 0 || s.Unavailable == 0 {
		t.Errorf("got %+v, want attempts that were not counted, and no dead letter", s)
	}
}

// TestBrokersAwayAtTheStart are waited for.
func TestBrokersAwayAtTheStart(t *testing.T) {
	w := newWorld(t, 1)
	w.send(0, "a")
	again := w.cluster.Proxy.Stop()
	r := w.start(func(c *Config[*sql.Tx]) { c.Brokers = w.cluster.Seeds() })
	time.Sleep(time.Second)
	must(t, again())
	w.awaitHandled(1)
	r.stop()
	w.wantHandled("a")
}

// TestStopWaitsForWhatIsUnderWay, and begins nothing more.
func TestStopWaitsForWhatIsUnderWay(t *testing.T) {
	w := newWorld(t, 1)
	w.send(0, "a", "b")
	begun := make(chan string, 2)
	r := w.start(func(c *Config[*sql.Tx]) {
		c.CommitInterval = time.Minute
		c.Handle = func(ctx context.Context, tx *sql.Tx, m Message) error {
			begun <- m.EventID
			time.Sleep(time.Second)
			return handle(ctx, tx, m)
		}
	})
	<-begun
	r.stop()
	w.wantHandled("a")
	if got := w.committed(); got != 1 || len(begun) > 0 {
		t.Errorf("offset %d is committed, want 1; %d more were begun", got, len(begun))
	}
}

// TestStopIsBounded: what takes too long is rolled back; a handler that does not heed its context is named.
func TestStopIsBounded(t *testing.T) {
	for _, heeds := range []bool{true, false} {
		t.Run(fmt.Sprint("heeds its context: ", heeds), func(t *testing.T) {
			w := newWorld(t, 1)
			w.send(0, "a")
			begun, release := make(chan struct{}), make(chan struct{})
			var after atomic.Int64
			r := w.start(func(c *Config[*sql.Tx]) {
				c.Finish, c.HandleTimeout = 300*time.Millisecond, time.Hour
				c.Handle = func(ctx context.Context, tx *sql.Tx, m Message) error {
					if err := handle(ctx, tx, m); err != nil {
						return err
					}
					close(begun)
					if heeds {
						<-ctx.Done()
						return ctx.Err()
					}
					<-release
					defer after.Add(1)
					return nil
				}
			})
			<-begun
			start := time.Now()
			err := r.end()
			if took := time.Since(start); took > 15*time.Second {
				t.Errorf("Run took %v to stop", took)
			}
			if named := err != nil && strings.Contains(err.Error(), w.topic+"[0]"); named == heeds {
				t.Errorf("Run returned %v", err)
			}
			close(release)
			if !heeds {
				eventually(t, "the handler's end", func() bool { return after.Load() == 1 })
			}
			time.Sleep(50 * time.Millisecond)
			if got := w.committed(); got > 0 {
				t.Errorf("offset %d is committed, want none", got)
			}
			if n := w.number("select count(*) from handled") + w.number("select count(*) from outbox_inbox"); n > 0 {
				t.Errorf("%d rows stay of what was rolled back", n)
			}
		})
	}
}
