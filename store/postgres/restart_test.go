package postgres_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pillarbox-dev/pillarbox/internal/pgtest"
	"github.com/pillarbox-dev/pillarbox/relay"
	"github.com/pillarbox-dev/pillarbox/store/postgres"
)

// TestRestartInTheMidst lets the database crash and stop while three relays work through it. Each call fails or succeeds,
// none hangs; afterwards all works again, and what was settled is there.
func TestRestartInTheMidst(t *testing.T) {
	server := pgtest.New(t, pgtest.Options{})
	url := server.Database(t)
	migrate(t, url, "public")
	store := open(t, postgres.Config{URL: url})
	woken, err := store.Listen(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	stop := make(chan struct{})
	var workers sync.WaitGroup
	relays := []*steady{{destination: "a"}, {destination: "b"}, {destination: "c"}}
	for _, r := range relays {
		r.lease = acquire(t, store, r.destination)
		workers.Go(func() { r.run(t, store, stop) })
	}
	for _, mode := range []pgtest.Mode{pgtest.Immediate, pgtest.Fast} {
		time.Sleep(200 * time.Millisecond)
		if err := server.Restart(mode); err != nil {
			t.Fatal(err)
		}
		select {
		case <-woken:
		case <-time.After(20 * time.Second):
			t.Errorf("after a restart %s: no value from Listen within 20 s", mode)
		}
	}
	time.Sleep(200 * time.Millisecond)
	close(stop)
	workers.Wait()
	conn := connect(t, url)
	for _, r := range relays {
		if r.failed == 0 || r.settledAfterFailure == 0 {
			t.Errorf("%s: %d calls failed, %d settled after that, want some of both",
				r.destination, r.failed, r.settledAfterFailure)
		}
		position := positionOf(t, conn, r.destination)
		rows := value[int64](t, conn, "select count(*) from outbox_delivery where destination = $1", r.destination)
		// Where an answer was lost, the same was settled again.
		if position != r.position || rows != r.position {
			t.Errorf("%s: position %d and %d rows, want %d of both", r.destination, position, rows, r.position)
		}
	}
}

// steady settles and reads, and tries again what failed.
type steady struct {
	destination                 string
	lease                       relay.LeaseID
	position                    int64
	failed, settledAfterFailure int
}

func (r *steady) run(t *testing.T, store *postgres.Store, stop <-chan struct{}) {
	size := int64(1)
	for {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		began := time.Now()
		s := relay.Settlement{Position: r.position + size}
		for seq := r.position + 1; seq <= s.Position; seq++ {
			s.Published = append(s.Published, relay.Receipt{Seq: seq})
		}
		_, err := store.Settle(ctx, r.lease, s)
		if err == nil {
			_, err = store.Read(ctx, relay.Query{Limit: 10, MaxBytes: 1000})
			r.position = s.Position
			size = 201 - size // by INSERT and by COPY in turn
			if r.failed > 0 {
				r.settledAfterFailure++
			}
		}
		cancel()
		if took := time.Since(began); took > 10*time.Second {
			t.Errorf("%s: a call took %v", r.destination, took)
		}
		if errors.Is(err, relay.ErrLeaseLost) || err != nil && !strings.HasPrefix(err.Error(), "postgres: ") {
			t.Errorf("%s: %v, want an error of the connection", r.destination, err)
			return
		}
		if err != nil {
			r.failed++
			time.Sleep(5 * time.Millisecond)
			continue
		}
		select {
		case <-stop:
			return
		default:
		}
	}
}

// TestListenHearsItsOwnSchema: all outboxes of a database share one channel.
func TestListenHearsItsOwnSchema(t *testing.T) {
	url := pgtest.Database(t)
	migrate(t, url, "orders")
	store := open(t, postgres.Config{URL: url, Schema: "orders"})
	ctx, cancel := context.WithCancel(t.Context())
	woken, err := store.Listen(ctx)
	if err != nil {
		t.Fatal(err)
	}
	conn := connect(t, url)
	exec(t, conn, "notify pillarbox, 'billing'; notify pillarbox; notify other, 'orders'")
	exec(t, conn, "select 1") // whoever was notified has been told by now
	select {
	case <-woken:
		t.Error("a value for another schema")
	case <-time.After(100 * time.Millisecond):
	}
	exec(t, conn, "notify pillarbox, 'orders'")
	select {
	case <-woken:
	case <-time.After(10 * time.Second):
		t.Error("no value for its own schema within 10 s")
	}
	cancel()
	await(t, "the channel is closed", func() bool {
		select {
		case _, ok := <-woken:
			return !ok
		default:
			return false
		}
	})
	await(t, "the connection is gone", func() bool {
		return value[int](t, conn, `select count(*) from pg_stat_activity
			where query ilike 'listen%' and datname = current_database()`) == 0
	})
}
