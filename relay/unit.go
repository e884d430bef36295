package relay

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"
)

// unit carries events to one shard of a destination. It stands by until it gets the shard's lease, works while it has it (a
// tenure), and stands by again when it is lost.
type unit struct {
	DestinationConfig
	shard    Shard
	shares   *shares // of all units of the destination
	store    Store
	owner    string
	ttl      time.Duration
	drain    time.Duration
	observer Observer
	log      *slog.Logger
	chance   func() float64
	policy   policy
	router   Router // nil: one endpoint
	limiter  Limiter
	maxBatch int

	wake   chan struct{} // something was committed
	status atomic.Pointer[UnitStatus]
}

// newUnits returns the units of a destination, one for each shard.
func newUnits(c Config, d DestinationConfig) []*unit {
	units := make([]*unit, d.Shards)
	shares := newShares()
	for n := range units {
		units[n] = newUnit(c, d, Shard{Number: n, Of: d.Shards})
		units[n].shares = shares
	}
	return units
}

func newUnit(c Config, d DestinationConfig, shard Shard) *unit {
	u := &unit{
		DestinationConfig: d,
		shard:             shard,
		store:             c.Store,
		owner:             c.Owner,
		ttl:               c.Lease,
		drain:             c.Drain,
		observer:          c.Observer,
		log:               c.Logger.With("destination", d.Name),
		chance:            c.Chance,
		policy:            policy{retry: d.Retry, chargeOutages: d.ChargeOutages, codeOnly: d.CodeOnly},
		maxBatch:          d.maxBatch(),
		wake:              make(chan struct{}, 1),
	}
	if r, ok := d.Destination.(Router); ok && r.Several() {
		u.router = r
	}
	if !shard.Whole() {
		u.log = u.log.With("shard", shard.Number)
	}
	u.limiter, _ = d.Destination.(Limiter)
	u.status.Store(&UnitStatus{Destination: d.Name, Shard: shard})
	return u
}

// run works until the context ends. An error is one that only an operator can mend.
func (u *unit) run(ctx context.Context) error {
	backoff := newBackoff(100*time.Millisecond, u.ttl/3)
	for ctx.Err() == nil {
		wait, err := u.turn(ctx, backoff)
		if err != nil {
			return fmt.Errorf("destination %q: %w", u.Name, err)
		}
		sleep(ctx, wait)
	}
	return nil
}

// turn tries to get the lease once, and works while it has it. It returns how long to wait before the next turn.
func (u *unit) turn(ctx context.Context, backoff *backoff) (wait time.Duration, err error) {
	if !u.shares.await(ctx, u.ttl, u.shard.Count(), u.alive) {
		return 0, nil
	}
	lease, ok, sent, err := u.acquire(ctx)
	u.shares.tried(ok)
	if ok {
		defer u.shares.lost()
	}
	switch {
	case ctx.Err() != nil: // the end, and no failure
		if ok {
			u.release(ctx, lease.LeaseID)
		}
		return 0, nil
	case err != nil:
		u.report(err)
		u.standBy(lease, err)
		return backoff.next(), nil
	case !ok:
		backoff.reset()
		u.standBy(lease, nil)
		return min(max(lease.ExpiresIn, u.ttl/100), u.ttl/3), nil
	}
	backoff.reset()
	return 0, u.work(ctx, lease, sent)
}

// acquire also returns when the lease's time began, measured before it was asked for.
func (u *unit) acquire(ctx context.Context) (lease Lease, ok bool, sent time.Time, err error) {
	ctx, cancel := context.WithTimeout(ctx, u.ttl)
	defer cancel()
	sent = time.Now()
	lease, ok, err = u.store.Acquire(ctx, AcquireRequest{
		Destination: u.Name, Shard: u.shard, Owner: u.owner, TTL: u.ttl, Topics: u.Topics, StartAtEnd: u.StartAtEnd,
	})
	if err != nil {
		err = fmt.Errorf("acquire the lease: %w", err)
	}
	return lease, ok, sent, err
}

// work holds the lease until it is lost, the context ends, or nothing but an operator can help.
func (u *unit) work(ctx context.Context, lease Lease, sent time.Time) error {
	if err := checkLog(lease.LastSeq, lease.Position, u.Name); err != nil {
		u.report(err)
		u.standBy(lease, err)
		u.release(ctx, lease.LeaseID)
		return err
	}
	t := newTenure(u, lease, sent)
	err := t.run(ctx)
	u.standBy(Lease{}, err)
	if errors.Is(err, errStopped) {
		u.release(ctx, lease.LeaseID)
		return nil
	}
	if errors.Is(err, ErrLeaseLost) {
		u.observer.Noticed(u.Name, Notice{Kind: NoticeLeaseLost})
		u.log.Warn("lost the lease: another relay may have taken over", "epoch", lease.Epoch)
		return nil
	}
	return err
}

// release gives a lease back at once, also when the context has ended.
func (u *unit) release(ctx context.Context, id LeaseID) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), u.ttl)
	defer cancel()
	if err := u.store.Release(ctx, id); err != nil {
		u.log.Warn("the lease was not given back; it expires by itself", "error", err)
		return
	}
	u.observer.Noticed(u.Name, Notice{Kind: NoticeLeaseReleased})
}

// checkLog notices a log whose numbers went back: the cursor would wait for ever, or skip what is new.
func checkLog(last, position int64, destination string) error {
	if last >= position {
		return nil
	}
	return fmt.Errorf("%w: the cursor stands at %d, but the log's last number is %d. Was the table truncated with RESTART IDENTITY, "+
		"or restored without the cursors? Stop the relays, run 'pillarbox reset-cursor %s --reason …', which sets outbox_cursor back "+
		"and lets the destination begin the log again, and start them", ErrLogReset, position, last, destination)
}

func (u *unit) report(err error) {
	u.observer.Noticed(u.Name, Notice{Kind: NoticeStoreError, Err: err})
	u.log.Error("the relay cannot work", "error", err)
}

func (u *unit) standBy(lease Lease, err error) {
	u.status.Store(&UnitStatus{Destination: u.Name, Shard: u.shard, Holder: lease.Owner, Pause: lease.Pause, Err: err, seen: time.Now()})
}

// alive shows that the unit waits for its turn and is not stuck; otherwise its status stays as it is.
func (u *unit) alive() {
	s := *u.status.Load()
	s.seen = time.Now()
	u.status.Store(&s)
}

// A backoff doubles from its first to its longest wait.
type backoff struct{ first, longest, wait time.Duration }

func newBackoff(first, longest time.Duration) *backoff {
	return &backoff{first: min(first, longest), longest: longest}
}

func (b *backoff) next() time.Duration {
	b.wait = min(max(2*b.wait, b.first), b.longest)
	return b.wait
}

func (b *backoff) reset() { b.wait = 0 }

func sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}
