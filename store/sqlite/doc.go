// Package sqlite is the relay's store over a SQLite file.
//
//	transaction → log → lanes → destination → outcome → settle
//	              └─ Store.Read                         └─ Store.Settle
//
// A service opens its database with OpenDB, `pillarbox migrate` makes the tables, and the relay opens the same file with
// Open, in the same process or in another one on the same machine. The driver is modernc.org/sqlite: no cgo.
//
// # One writer
//
// SQLite lets one transaction write at a time, in all processes together; the write-ahead log (WAL mode, which Open and OpenDB
// switch on) lets readers work meanwhile, each on its snapshot. So autoincrement order is commit order: a number that is
// missing below one that is visible will never be seen, and every gap is dead at once (see Store.Read).
//
// A Store has one connection for writing and a few for reading. It writes in BEGIN IMMEDIATE transactions, which take the write
// lock at their start, so that none fails half-way because another writer came first. Who finds the lock taken waits for up
// to Config.BusyTimeout and then gets an Error for which Temporary is true and errors.Is(err, ErrBusy); the
// relay tries again later, and nothing was written. A service's transaction waits in the same way, so keep transactions that
// write short, and never wait for a network in one. A settle takes 2 to 10 µs for each of its rows.
//
// # Durability
//
// With Synchronous Full, the default, a commit is on the disk when it returns. With Normal it is handed to the operating system
// alone: a killed process loses nothing, but a power failure may take the last transactions away, in order. In the service's
// connection that means that an event may have been delivered whose transaction is gone; in the relay's, that what was settled
// last is delivered again. Both are whole transactions: the file is never damaged by it.
//
// # The WAL
//
// A writer moves the WAL's pages into the database file whenever 1,000 pages have gathered (SQLite's own checkpoint), but
// it can begin the WAL anew only at a moment when nobody reads from it. With many destinations there may be no such moment. So
// when the WAL has grown beyond Config.MaxWAL, the store keeps its own reads back for the time of one checkpoint and cuts
// the WAL to nothing. Readers of other processes are waited for, and writers kept away, for 0.1 s. One that keeps its
// snapshot for longer (a backup, a forgotten transaction) lets the WAL grow until it ends; it is cut within ten seconds after.
//
// # Clock
//
// SQLite has no clock but the machine's. Leases, retries and available_at go by it (Config.Now), so a relay must run on the
// machine that has the file; WAL mode wants that anyway: it does not work over a network file system. When the clock is
// set back, leases and retries end that much later.
//
// # Waking
//
// SQLite cannot notify. A service with the relay inside calls Store.Wake after its commit; a relay in another process finds
// new events by polling, which is one short read of an index.
//
// # Files
//
// Beside the file SQLite keeps two more, -wal and -shm, with the permissions of the first. Every process needs to write all three
// and their folder. Copy a database in use with VACUUM INTO or the sqlite3 program's .backup, not with cp. On Linux and other
// Unix systems SQLite's locks are POSIX locks, which a process loses when it closes any descriptor of the file: never
// open the database file with os.Open in a process that uses it.
package sqlite
