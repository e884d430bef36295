package sqlite_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/pillarbox-dev/pillarbox/relay"
	"github.com/pillarbox-dev/pillarbox/store/sqlite"
)

// Another process holds the write lock for longer than the busy timeout: reads go on, writes fail with an error that says
// so, and work afterwards.
func TestBusy(t *testing.T) {
	const timeout = 200 * time.Millisecond
	d := newDatabase(t, sqlite.Config{BusyTimeout: timeout})
	insert(t, d.db, "k", 3)
	l := d.lease(t, "dest")
	s := relay.Settlement{Position: 1, Published: []relay.Receipt{{Seq: 1}}}
	c := startChild(t, "hold", d.path)
	c.line(t)

	for name, call := range map[string]func(context.Context) error{
		"Acquire": func(ctx context.Context) error {
			_, _, err := d.store.Acquire(ctx, relay.AcquireRequest{Destination: "new", Owner: "x", TTL: time.Minute})
			return err
		},
		"Renew":   func(ctx context.Context) error { _, err := d.store.Renew(ctx, l); return err },
		"Release": func(ctx context.Context) error { return d.store.Release(ctx, l) },
		"Settle":  func(ctx context.Context) error { _, err := d.store.Settle(ctx, l, s); return err },
		"Recover": func(ctx context.Context) error { _, err := d.store.Recover(ctx, l, 10); return err },
		"Claim": func(ctx context.Context) error {
			_, err := d.store.Claim(ctx, l, relay.Claim{Due: true, Limit: 1, MaxBytes: 1})
			return err
		},
	} {
		began := time.Now()
		err := call(t.Context())
		var temporary interface{ Temporary() bool }
		if !errors.Is(err, sqlite.ErrBusy) || !errors.As(err, &temporary) || !temporary.Temporary() {
			t.Errorf("%s: got %v, want a temporary ErrBusy", name, err)
		} else if !strings.Contains(err.Error(), "busy timeout") || !strings.Contains(err.Error(), d.path) {
			t.Errorf("%s: error %q does not name the timeout and the file", name, err)
		}
		if took := time.Since(began); took < timeout || took > timeout+2*time.Second {
			t.Errorf("%s: failed after %v, want the busy timeout of %v", name, took, timeout)
		}
	}
	if page := d.read(t, relay.Query{}); len(page.Events) != 3 {
		t.Errorf("read %d events while another process writes, want 3", len(page.Events))
	}

	// A context that ends first is the reason that is given.
	ctx, cancel := context.WithTimeout(t.Context(), timeout/10)
	defer cancel()
	if _, err := d.store.Settle(ctx, l, s); !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, sqlite.ErrBusy) {
		t.Errorf("Settle with a deadline before the busy timeout: got %v, want the deadline", err)
	}

	c.stdin.Close()
	c.wait(t)
	if n := number(t, d.db, "select count(*) from outbox_delivery"); n != 0 {
		t.Errorf("the settles that failed have written %d rows", n)
	}
	d.settle(t, l, s)
	if n := number(t, d.db, "select position from outbox_cursor where destination = 'dest'"); n != 1 {
		t.Errorf("position %d after the lock was free, want 1", n)
	}
}

// A writer that lets go in time is waited for.
func TestBusyForAShortTime(t *testing.T) {
	d := newDatabase(t, sqlite.Config{})
	l := d.lease(t, "dest")
	c := startChild(t, "hold", d.path)
	c.line(t)
	time.AfterFunc(100*time.Millisecond, func() { c.stdin.Close() })
	d.settle(t, l, relay.Settlement{Position: 1})
	c.wait(t)
}
