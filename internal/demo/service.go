package demo

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/pillarbox-dev/pillarbox/internal/reckon"
	"github.com/pillarbox-dev/pillarbox/outbox"
	"github.com/pillarbox-dev/pillarbox/outbox/schema"
	"github.com/pillarbox-dev/pillarbox/store/sqlite"
)

// service is a small shop. Its workers change orders and write events in the same transactions, and roll some of them back, whole or
// to a savepoint. It keeps a record, which knows nothing of the outbox, of what it committed.
type service struct {
	db  *sql.DB
	box *outbox.Outbox

	mu         sync.Mutex
	committed  []reckon.Written
	rolledBack map[string]bool
}

const (
	workers       = 4
	ordersEach    = 6
	pause         = 40 * time.Millisecond // between two transactions of a worker, on average
	topic         = "orders"
	supplierName  = "supplier" // the header that names the endpoint
	rejectedCode  = "REJECTED_AMOUNT"
	blackHoleName = "umbrella"
)

// suppliers are the endpoints. An order belongs to one of them.
var suppliers = [...]string{"acme", "globex", "initech", blackHoleName}

const serviceTables = `
create table orders (id text primary key, changes integer not null) strict;
create table transactions (id text primary key) strict;`

const (
	changeOrder  = `insert into orders values (?1, 1) on conflict (id) do update set changes = changes + 1 returning changes`
	noteTx       = `insert into transactions values (?1)`
	wasCommitted = `select exists (select 1 from transactions where id = ?1)`
)

func newService(ctx context.Context, path string) (*service, error) {
	db, err := sqlite.OpenDB(ctx, sqlite.Config{Path: path})
	if err != nil {
		return nil, err
	}
	s := &service{db: db, rolledBack: map[string]bool{}}
	if _, err = schema.Migrate(ctx, db, schema.SQLite, ""); err == nil {
		if _, err = db.ExecContext(ctx, serviceTables); err == nil {
			s.box, err = outbox.New(outbox.SQLite, outbox.Options{})
		}
	}
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return s, nil
}

func (s *service) close() error { return s.db.Close() }

// run works until the context ends. A transaction that has begun is brought to its end.
func (s *service) run(ctx context.Context) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	errs := make([]error, workers)
	var working sync.WaitGroup
	for i := range workers {
		working.Go(func() {
			if errs[i] = s.work(ctx, i); errs[i] != nil {
				stop()
			}
		})
	}
	working.Wait()
	return errors.Join(errs...)
}

// work changes the orders of one worker. No two workers share an order, so the order of their commits is that of the record.
func (s *service) work(ctx context.Context, worker int) error {
	for n := 1; ; n++ {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(rand.N(2 * pause)):
		}
		if err := s.transact(context.WithoutCancel(ctx), worker, fmt.Sprintf("%d-%d", worker, n)); err != nil {
			return fmt.Errorf("the service: %w", err)
		}
	}
}

// transact is one transaction with one to three events. One in five is rolled back, one in five has a savepoint that is.
func (s *service) transact(ctx context.Context, worker int, txID string) error {
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback() // after a commit it does nothing
	if _, err := tx.ExecContext(ctx, noteTx, txID); err != nil {
		return err
	}
	kept, err := s.change(ctx, tx, worker, 1+rand.N(3))
	if err != nil {
		return err
	}
	var dropped []reckon.Written
	switch rand.N(5) {
	case 0:
		s.note(nil, kept)
		return tx.Rollback()
	case 1:
		if dropped, err = s.changeMind(ctx, tx, worker); err != nil {
			return err
		}
		more, err := s.change(ctx, tx, worker, 1)
		if err != nil {
			return err
		}
		kept = append(kept, more...)
	}
	if err := tx.Commit(); err != nil {
		if kept, dropped, err = s.lookUp(ctx, txID, err, kept, dropped); err != nil {
			return err
		}
	}
	s.note(kept, dropped)
	return nil
}

// change changes orders of a worker, with an event for each.
func (s *service) change(ctx context.Context, tx *sql.Tx, worker, n int) (events []reckon.Written, err error) {
	for range n {
		number := worker*ordersEach + rand.N(ordersEach)
		w := reckon.Written{Key: fmt.Sprintf("order-%02d", number)}
		var version int64
		if err := tx.QueryRowContext(ctx, changeOrder, w.Key).Scan(&version); err != nil {
			return nil, err
		}
		amount := rand.N(100_00)
		if rand.N(50) == 0 {
			amount = -1 // the supplier will not have it
		}
		results, err := s.box.Enqueue(ctx, tx, outbox.Event{
			Topic: topic, Key: w.Key, Type: "OrderChanged",
			AggregateType: "order", AggregateID: w.Key, AggregateVersion: version,
			Payload: fmt.Appendf(nil, `{"order":%q,"version":%d,"amount":%d}`, w.Key, version, amount),
			Headers: map[string]string{supplierName: suppliers[number%len(suppliers)]},
		})
		if err != nil {
			return nil, err
		}
		w.ID = results[0].ID
		events = append(events, w)
	}
	return events, nil
}

// changeMind changes an order and rolls that back alone.
func (s *service) changeMind(ctx context.Context, tx *sql.Tx, worker int) ([]reckon.Written, error) {
	if _, err := tx.ExecContext(ctx, "savepoint mind"); err != nil {
		return nil, err
	}
	dropped, err := s.change(ctx, tx, worker, 1)
	if err != nil {
		return nil, err
	}
	_, err = tx.ExecContext(ctx, "rollback to mind")
	return dropped, err
}

// lookUp settles what a commit did that came back with an error.
func (s *service) lookUp(ctx context.Context, txID string, cause error, kept, dropped []reckon.Written) ([]reckon.Written, []reckon.Written, error) {
	var committed bool
	if err := s.db.QueryRowContext(ctx, wasCommitted, txID).Scan(&committed); err != nil {
		return nil, nil, errors.Join(cause, err)
	}
	if committed {
		return kept, dropped, nil
	}
	return nil, append(dropped, kept...), nil
}

// note adds to the record.
func (s *service) note(committed, rolledBack []reckon.Written) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.committed = append(s.committed, committed...)
	for _, w := range rolledBack {
		s.rolledBack[w.ID] = true
	}
}

// record returns what was committed, in order, and what was rolled back.
func (s *service) record() (committed []reckon.Written, rolledBack map[string]bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	rolledBack = make(map[string]bool, len(s.rolledBack))
	for id := range s.rolledBack {
		rolledBack[id] = true
	}
	return slices.Clone(s.committed), rolledBack
}
