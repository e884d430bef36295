package kafka

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// partitions returns how many partitions a member has.
func (r *running) partitions() int { return len(r.Stats().Partitions) }

// TestRebalanceFinishesWhatIsUnderWay: of a partition that goes, the message under way is finished and its offset is committed; the
// partitions that stay are not interrupted. Nothing is handled twice, not even to be absorbed by the inbox.
func TestRebalanceFinishesWhatIsUnderWay(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 4)
	const each = 200
	for p := range int32(4) {
		w.send(p, ids(fmt.Sprint("p", p, "-"), each)...)
	}
	slow := func(c *Config[*sql.Tx]) {
		c.CommitInterval = time.Minute
		c.Handle = func(ctx context.Context, tx *sql.Tx, m Message) error {
			time.Sleep(20 * time.Millisecond)
			return handle(ctx, tx, m)
		}
	}
	a := w.start(slow)
	w.awaitHandled(20)
	b := w.start(slow)
	eventually(t, "two partitions each", func() bool { return a.partitions() == 2 && b.partitions() == 2 })
	if s := a.Stats(); s.Revoked != 2 || s.Assigned != 4 {
		t.Errorf("the first member: %+v, want 2 of 4 revoked", s)
	}
	n := w.number("select count(*) from handled")
	w.awaitHandled(n + 20)
	b.stop()
	eventually(t, "all partitions", func() bool { return a.partitions() == 4 })
	w.awaitHandled(4 * each)
	a.stop()
	sa, sb := a.Stats(), b.Stats()
	if sa.Handled+sb.Handled != 4*each || sa.Duplicates+sb.Duplicates > 0 || sb.Handled == 0 || sa.Lost+sb.Lost > 0 {
		t.Errorf("got %+v and %+v, want %d handled by both, and no duplicate", sa, sb, 4*each)
	}
	if got := w.number("select count(*) from handled"); got != 4*each {
		t.Errorf("%d rows, want %d", got, 4*each)
	}
}

// TestRebalanceRollsBackWhatTakesTooLong: another member gets the partition soon, whatever the handler does.
func TestRebalanceRollsBackWhatTakesTooLong(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 2)
	w.send(0, "a0")
	w.send(1, "a1")
	begun := make(chan struct{}, 2)
	a := w.start(func(c *Config[*sql.Tx]) {
		c.Finish, c.HandleTimeout = 200*time.Millisecond, time.Hour
		c.Handle = func(ctx context.Context, tx *sql.Tx, m Message) error {
			if err := handle(ctx, tx, m); err != nil {
				return err
			}
			begun <- struct{}{}
			<-ctx.Done()
			return ctx.Err()
		}
	})
	<-begun
	<-begun
	b := w.start(nil)
	w.awaitHandled(1)
	a.stop()
	w.awaitHandled(2)
	b.stop()
	if got := w.number("select count(*) from handled"); got != 2 || b.Stats().Handled != 2 {
		t.Errorf("%d rows, want 2 by the second member: %+v", got, b.Stats())
	}
}

// TestLostPartitions: a member whom the group has given up rolls back, commits nothing, and comes back.
func TestLostPartitions(t *testing.T) {
	t.Parallel() // it waits for the end of a session
	w := newWorld(t, 1)
	all := ids("e", 200)
	w.send(0, all...)
	r := w.start(func(c *Config[*sql.Tx]) {
		c.Brokers = w.cluster.Seeds()
		c.Client = append(c.Client, kgo.RetryTimeout(2*time.Second))
		c.Handle = func(ctx context.Context, tx *sql.Tx, m Message) error {
			time.Sleep(50 * time.Millisecond)
			return handle(ctx, tx, m)
		}
	})
	w.awaitHandled(10)
	again := w.cluster.Proxy.Stop()
	time.Sleep(8 * time.Second) // the session, and a little
	must(t, again())
	eventually(t, "the partition lost", func() bool { return r.Stats().Lost > 0 })
	w.awaitHandled(200)
	r.stop()
	w.wantHandled(all...)
}

// TestStartAtEndLosesNothing: the first start decides where a group begins. What comes after it is handled, also when nothing was
// committed before the next one: because there was nothing yet, or because it could not be handled.
func TestStartAtEndLosesNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 2)
	w.send(0, "before")
	atEnd := func(c *Config[*sql.Tx]) { c.StartAtEnd = true }
	r := w.start(func(c *Config[*sql.Tx]) {
		atEnd(c)
		c.Handle = func(context.Context, *sql.Tx, Message) error { return TryAgain(0, nil) }
	})
	eventually(t, "both partitions", func() bool { return r.partitions() == 2 })
	eventually(t, "the beginning", func() bool { return w.committed() == 1 })
	w.send(0, "a")
	eventually(t, "an attempt", func() bool { return r.Stats().Unavailable > 0 })
	r.stop()
	w.send(1, "b")
	r = w.start(atEnd)
	w.awaitHandled(2)
	r.stop()
	got := w.list("select event_id from handled order by 1")
	if !slices.Equal(got, []string{"a", "b"}) {
		t.Errorf("handled %q, want a and b", got)
	}
}
