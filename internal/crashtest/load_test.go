package crashtest

import (
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pillarbox-dev/pillarbox/outbox"
)

// service is the producers' side: each transaction writes business rows and one event for each.
type service struct {
	db  *sql.DB
	box *outbox.Outbox
	// longest is for how long a transaction may stay open.
	longest time.Duration
}

func newService(d dialect, db *sql.DB) (*service, error) {
	box, err := outbox.New(d.outbox, outbox.Options{Schema: d.schema})
	return &service{db: db, box: box, longest: d.longest}, err
}

// transaction is one business transaction of a key; n counts them. Some roll back, as a whole or to a savepoint, and some
// stay open for a while, so that others commit higher numbers before. beforeCommit, unless nil, is called at the last moment.
func (s *service) transaction(ctx context.Context, key string, n int, beforeCommit func()) (err error) {
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback() // after a commit it does nothing
	events := 1 + rand.IntN(3)
	for i := range events {
		if err := s.change(ctx, tx, key, n, i); err != nil {
			return err
		}
	}
	if rand.IntN(4) == 0 {
		if _, err := tx.ExecContext(ctx, "savepoint s"); err != nil {
			return err
		}
		if err := s.change(ctx, tx, key, n, events); err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, "rollback to savepoint s"); err != nil {
			return err
		}
	}
	if rand.IntN(30) == 0 {
		time.Sleep(rand.N(s.longest))
	}
	if beforeCommit != nil {
		beforeCommit()
	}
	if rand.IntN(5) == 0 {
		return tx.Rollback()
	}
	return tx.Commit()
}

// change is one business row and its event.
func (s *service) change(ctx context.Context, tx *sql.Tx, key string, n, i int) error {
	id := fmt.Sprintf("%s-%06d-%d", key, n, i)
	if _, err := tx.ExecContext(ctx, "insert into business (id) values ('"+id+"')"); err != nil {
		return err
	}
	_, err := s.box.Enqueue(ctx, tx, outbox.Event{ID: id, Topic: "orders", Key: key, Type: "OrderPlaced", Payload: []byte(`{"n":1}`)})
	return err
}

// load is producers at work: one goroutine for each key, so that the transactions of a key follow each other.
type load struct {
	stopped atomic.Bool
	working sync.WaitGroup
	failed  atomic.Int64
}

const keys = 6

// load starts producers. They go on after errors: the database may be away for a while.
func (b *bench) load() *load {
	b.Helper()
	s, err := newService(b.dialect, b.db)
	if err != nil {
		b.Fatal(err)
	}
	l := &load{}
	for k := range keys {
		l.working.Go(func() {
			for n := 0; !l.stopped.Load(); n++ {
				if err := s.transaction(context.Background(), fmt.Sprint("key", k), n, nil); err != nil {
					l.failed.Add(1)
				}
				time.Sleep(time.Duration(rand.IntN(6)) * time.Millisecond)
			}
		})
	}
	b.Cleanup(l.stop)
	return l
}

// stop waits until the last transaction has ended.
func (l *load) stop() {
	l.stopped.Store(true)
	l.working.Wait()
}

// runProducer is a producer in a process of its own, which kills itself in the midst of a transaction, before the commit.
func runProducer(ctx context.Context, args processArgs) error {
	d := dialects[args.Dialect]
	db, err := d.openDB(ctx, args.Database)
	if err != nil {
		return err
	}
	s, err := newService(d, db)
	if err != nil {
		return err
	}
	for n := range args.Nth {
		if err := s.transaction(ctx, args.Key, n, nil); err != nil {
			return err
		}
	}
	return s.transaction(ctx, args.Key, args.Nth, kill)
}
