package sqlite

import (
	"context"
	"database/sql"
	"os"
	"sync"
	"time"
)

const (
	checkpointSQL = `pragma wal_checkpoint(truncate)`

	// checkpointWait is how long a checkpoint waits for readers and writers of other processes. Meanwhile nobody writes.
	checkpointWait = 100 * time.Millisecond
	// checkpointPause follows a checkpoint that somebody was in the way of.
	checkpointPause = 10 * time.Second
)

// wal keeps the write-ahead log from growing for ever. SQLite begins it anew when a commit finds all of it in the
// database file and nobody reading from it; reads that overlap without a pause prevent that.
type wal struct {
	path  string
	limit int64
	now   func() time.Time
	db    *sql.DB // one connection, made when it is first needed

	readers sync.RWMutex // held for reading by reads
	mu      sync.Mutex   // held by the one that cuts
	pause   time.Time    // until then nothing is tried
}

// reading is called when a read begins, and what it returns when it has ended.
func (w *wal) reading() (end func()) {
	w.readers.RLock()
	return w.readers.RUnlock
}

// bound cuts the log if it is too long. It is called after commits, and what fails here fails none of them: it is tried
// again after one of the next.
func (w *wal) bound(ctx context.Context) {
	info, err := os.Stat(w.path)
	if err != nil || info.Size() <= w.limit || !w.mu.TryLock() {
		return
	}
	defer w.mu.Unlock()
	if w.now().Before(w.pause) {
		return
	}
	w.readers.Lock() // waits for the reads under way and keeps new ones back
	defer w.readers.Unlock()
	busy, pages, moved := true, 0, 0
	if err := w.db.QueryRowContext(ctx, checkpointSQL).Scan(&busy, &pages, &moved); err != nil || busy {
		w.pause = w.now().Add(checkpointPause)
	}
}
