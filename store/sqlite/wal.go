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

	// checkpointWait is how long a checkpoint waits for readers and writers. Meanwhile nobody writes.
	checkpointWait = 100 * time.Millisecond
	// checkpointPause follows a checkpoint that somebody was in the way of.
	checkpointPause = 10 * time.Second
)

// wal keeps the write-ahead log from growing for ever. SQLite begins it anew when a commit finds all of it in the
// database file and nobody reading from it; reads that overlap without a pause prevent that. A truncating checkpoint keeps
// writers away until the readers of that moment have ended; those who come meanwhile need the database file alone.
type wal struct {
	path  string
	limit int64
	now   func() time.Time
	db    *sql.DB // one connection, made when it is first needed

	mu    sync.Mutex // held by the one that cuts
	pause time.Time  // until then nothing is tried
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
	busy, pages, moved := true, 0, 0
	if err := w.db.QueryRowContext(ctx, checkpointSQL).Scan(&busy, &pages, &moved); err != nil || busy {
		w.pause = w.now().Add(checkpointPause)
	}
}
