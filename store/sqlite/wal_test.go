package sqlite_test

import (
	"context"
	"database/sql"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/pillarbox-dev/pillarbox/relay"
	"github.com/pillarbox-dev/pillarbox/store/sqlite"
)

func walSize(t *testing.T, path string) int64 {
	t.Helper()
	info, err := os.Stat(path + "-wal")
	if err != nil {
		t.Fatal(err)
	}
	return info.Size()
}

// publish settles a thousand first-attempt successes above the position and returns the new one.
func (d *database) publish(t *testing.T, l relay.LeaseID, position int64) int64 {
	t.Helper()
	var s relay.Settlement
	for range 1000 {
		position++
		s.Published = append(s.Published, relay.Receipt{Seq: position, Receipt: "200"})
	}
	s.Position = position
	d.settle(t, l, s)
	return position
}

// Reads that overlap without a pause would let the WAL grow for ever.
func TestWALIsBounded(t *testing.T) {
	const limit = 2 << 20
	d := newDatabase(t, sqlite.Config{MaxWAL: limit})
	insert(t, d.db, "", 5000)
	l := d.lease(t, "dest")
	ctx, stop := context.WithCancel(t.Context())
	var readers sync.WaitGroup
	for range 4 {
		readers.Go(func() {
			for ctx.Err() == nil {
				page, err := d.store.Read(context.Background(), relay.Query{Limit: 5000, MaxBytes: 1 << 30})
				if err != nil || len(page.Events) != 5000 {
					t.Errorf("read %d events, %v, want 5000", len(page.Events), err)
				}
			}
		})
	}
	position := int64(0)
	for range 30 {
		position = d.publish(t, l, position)
		if size := walSize(t, d.path); size > limit {
			t.Errorf("the WAL has %d bytes after a settle, want at most %d", size, limit)
			break
		}
	}
	stop()
	readers.Wait()
}

// A reader of another program cannot be held back: writes go on, and the WAL shrinks when it has ended.
func TestWALOutlivesAForeignReader(t *testing.T) {
	const limit = 1 << 20
	now := time.Now()
	var mu sync.Mutex
	clock := func() time.Time {
		mu.Lock()
		defer mu.Unlock()
		return now
	}
	d := newDatabase(t, sqlite.Config{MaxWAL: limit, Now: clock})
	l := d.lease(t, "dest")
	reader, err := d.db.BeginTx(t.Context(), &sql.TxOptions{ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Rollback()
	var n int
	if err := reader.QueryRowContext(t.Context(), "select count(*) from outbox_event").Scan(&n); err != nil {
		t.Fatal(err)
	}
	position := int64(0)
	for walSize(t, d.path) < 3*limit {
		began := time.Now()
		position = d.publish(t, l, position)
		if took := time.Since(began); took > 2*time.Second {
			t.Fatalf("a settle took %v beside a reader", took)
		}
	}
	reader.Rollback()
	mu.Lock()
	now = now.Add(time.Minute) // the pause that followed the attempt in vain
	mu.Unlock()
	d.publish(t, l, position)
	if size := walSize(t, d.path); size > limit {
		t.Errorf("the WAL has %d bytes after the reader has ended, want at most %d", size, limit)
	}
}
