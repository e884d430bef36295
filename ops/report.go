package ops

import "time"

// RetentionReport is what one run of retention did.
type RetentionReport struct {
	// Horizon is the number up to which every destination is settled: nothing above it is touched.
	Horizon int64 `json:"horizon"`
	// HeldBy is what the horizon comes from: a destination, or a replay that is not at its end. "": no destination has begun yet.
	HeldBy   string        `json:"held_by,omitempty"`
	Events   int64         `json:"events"`     // deleted or moved
	Archived int64         `json:"archived"`   // of those, moved to the archive
	Kept     int64         `json:"kept"`       // old enough, but FAILED, QUARANTINED or otherwise unsettled somewhere
	Took     time.Duration `json:"took_nanos"` //
	Finished bool          `json:"finished"`   // there was nothing left to do
}

// Finding is one thing that a reconciliation has found.
type Finding struct {
	// Check is the name of the query, or one of "ledger" and "inbox".
	Check string `json:"check"`
	// Rows are what it returned, at most 100, each as column → value.
	Rows []map[string]any `json:"rows"`
	// Count is how many there were, counted up to a limit; AtLeast: there are more.
	Count   int64  `json:"count"`
	AtLeast bool   `json:"at_least"`
	Hint    string `json:"hint"`
}

// ReconcileReport is the result of a reconciliation. It is well when Findings and Errors are empty.
type ReconcileReport struct {
	At       time.Time         `json:"at"`
	Checks   []string          `json:"checks"` // that were made
	Findings []Finding         `json:"findings"`
	Errors   map[string]string `json:"errors,omitempty"` // by check: it could not be made
}

// Health is what the database says of itself.
type Health struct {
	At time.Time `json:"at"`
	// Version is the server's, like "PostgreSQL 15.8" or "SQLite 3.50.1".
	Version string        `json:"version"`
	Tables  []TableHealth `json:"tables"`
	// LockWaits are sessions that wait for a lock on our tables; OldestTransaction is the age of the oldest open one of the
	// cluster, which holds vacuum back. PostgreSQL only.
	LockWaits         int64   `json:"lock_waits"`
	OldestTransaction Seconds `json:"oldest_transaction_seconds"`
	// DatabaseBytes is the size of the database (SQLite: of the file), WALBytes that of SQLite's WAL file.
	DatabaseBytes int64 `json:"database_bytes"`
	WALBytes      int64 `json:"wal_bytes,omitempty"`
	// Advice is what an operator should do about it, one sentence each; none: all is well.
	Advice []string `json:"advice"`
}

// TableHealth is the state of one of our tables.
type TableHealth struct {
	Table        string     `json:"table"`
	Rows         int64      `json:"rows_estimated"`
	TableBytes   int64      `json:"table_bytes"`
	IndexBytes   int64      `json:"index_bytes"`
	DeadRows     int64      `json:"dead_rows"` // PostgreSQL only
	LastVacuum   *time.Time `json:"last_vacuum,omitempty"`
	LastAnalyzed *time.Time `json:"last_analyzed,omitempty"`
}
