package demo

import (
	"context"
	"sync"
)

// Lie is a promise that the receiver breaks, so that a test can see that the reckoning would notice.
type Lie string

const (
	Honest Lie = ""
	Loses  Lie = "lost"         // says yes to some events and forgets them
	Forges Lie = "false"        // handles events that nobody sent
	Swaps  Lie = "out-of-order" // says yes at once and handles some events after the next one of their order
)

// lieEvery is how many deliveries come between two lies.
const lieEvery = 10

// liar keeps count of the lies.
type liar struct {
	mu   sync.Mutex
	seen int
	told map[string]bool     // events that were lied about, so that a repetition does not heal it
	late map[string]delivery // by order: waits for the next one
}

func (l *liar) handle(ctx context.Context, r *receiver, d delivery) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.told == nil {
		l.told, l.late = map[string]bool{}, map[string]delivery{}
	}
	if l.told[d.id] {
		return nil
	}
	l.seen++
	lies := l.seen%lieEvery == 0
	switch held, waits := l.late[d.Order]; {
	case r.lie == Swaps && waits:
		delete(l.late, d.Order)
		if err := r.record(ctx, d); err != nil {
			return err
		}
		return r.record(ctx, held)
	case r.lie == Swaps && lies:
		l.told[d.id] = true
		l.late[d.Order] = d
		return nil
	case r.lie == Loses && lies:
		l.told[d.id] = true
		return nil
	case r.lie == Forges && lies:
		forged := d
		forged.id = "forged-" + d.id
		if err := r.record(ctx, forged); err != nil {
			return err
		}
	}
	return r.record(ctx, d)
}
