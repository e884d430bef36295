package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/pillarbox-dev/pillarbox/contract"
	"github.com/pillarbox-dev/pillarbox/examples/approvals/approval"
	"github.com/pillarbox-dev/pillarbox/outbox"
)

const (
	workers = 3
	pause   = 60 * time.Millisecond // between two approvals of a worker, on average
)

// workload is what people do all day: they ask for approvals, agree, use them, think better of it. What has begun
// when the context ends is brought to its end. It returns an error when two requests got one approval.
func workload(ctx context.Context, service *approval.Service, log *slog.Logger) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	errs := make([]error, workers)
	var working sync.WaitGroup
	for i := range workers {
		working.Go(func() {
			for errs[i] == nil && ctx.Err() == nil {
				err := live(context.WithoutCancel(ctx), service)
				switch {
				case errors.Is(err, errTwoUses):
					errs[i] = err
					stop()
				case err != nil && !errors.Is(err, errChangedMind):
					log.Warn("a worker failed", "error", err) // the database is away, or busy
				}
				select {
				case <-ctx.Done():
				case <-time.After(rand.N(2 * pause)):
				}
			}
		})
	}
	working.Wait()
	return errors.Join(errs...)
}

var tenants = [...]string{"acme", "globex", "initech"}

// live is the life of one approval.
func live(ctx context.Context, service *approval.Service) error {
	a, err := issue(ctx, service)
	if err != nil {
		return err
	}
	act := approval.Act{Actor: "user:carol", CorrelationID: uuid.NewString()}
	switch rand.N(4) {
	case 0:
		act.Reason = "not needed any more"
		_, err = service.Revoke(ctx, a.ID, act)
	case 1:
		successor, failed := service.Open(ctx, request())
		if failed != nil {
			return failed
		}
		act.Reason = "the amount has changed"
		_, err = service.Supersede(ctx, a.ID, successor.ID, act)
	default:
		err = useTwice(ctx, service, a.ID, act)
	}
	return err
}

// issue opens an approval and lets two agree.
func issue(ctx context.Context, service *approval.Service) (a approval.Approval, err error) {
	if a, err = service.Open(ctx, request()); err != nil {
		return a, err
	}
	for _, approver := range []string{"user:ann", "user:bob"} {
		if a, err = service.Agree(ctx, a.ID, approval.Act{Actor: approver}); err != nil {
			return a, err
		}
	}
	return a, nil
}

func request() approval.Request {
	return approval.Request{
		ID: "apr-" + uuid.NewString(), Tenant: tenants[rand.N(len(tenants))], Scope: "payments", BindingDigest: digest(),
		Threshold: 2, Lifetime: time.Hour,
	}
}

// digest stands for that of some request or binding.
func digest() string {
	return "sha256:" + strings.ReplaceAll(uuid.NewString()+uuid.NewString(), "-", "")
}

var errTwoUses = errors.New("one approval was used by two requests")

// useTwice lets two requests use one approval at the same time. The one that got it asks once more, as after a lost answer.
func useTwice(ctx context.Context, service *approval.Service, id string, act approval.Act) error {
	var uses [2]approval.Use
	var errs [2]error
	var using sync.WaitGroup
	for i := range uses {
		using.Go(func() { uses[i], errs[i] = service.Use(ctx, id, digest(), act) })
	}
	using.Wait()
	for i, use := range uses {
		if errs[i] != nil {
			continue
		}
		if errs[1-i] == nil {
			return fmt.Errorf("%w: %s", errTwoUses, id)
		}
		again, err := service.Use(ctx, id, use.RequestDigest, act)
		if err == nil && again != use {
			return fmt.Errorf("%w: %s", errTwoUses, id)
		}
		return err
	}
	return errors.Join(errs[:]...)
}

// errChangedMind rolls a transaction back.
var errChangedMind = errors.New("they have changed their mind")

// fickle refuses one in ten events after it was written, so that the transaction is rolled back, and says so in a line of its
// own.
type fickle struct {
	contract.Enqueuer
	mu  sync.Mutex
	out io.Writer
}

// rolledBack begins the line.
const rolledBack = "rolled back "

func (f *fickle) Enqueue(ctx context.Context, tx outbox.Tx, events ...outbox.Event) ([]outbox.Result, error) {
	results, err := f.Enqueuer.Enqueue(ctx, tx, events...)
	if err != nil || rand.N(10) > 0 {
		return results, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, r := range results {
		_, _ = fmt.Fprintln(f.out, rolledBack+r.ID)
	}
	return nil, errChangedMind
}
