// Package inbox is the consumer's record of what it has handled. Events arrive at least once; with the inbox they count once.
//
//	transaction → log → lanes → destination → outcome → settle
//	                                 └─ receiver: verify → inbox, handler, commit
//
// The record is written in the handler's own transaction, so the two become true together or not at all: a handler that returns
// an error or panics, and whose transaction is rolled back, leaves no record, and the event's next delivery is handled as if it
// were the first.
//
//	first, err := box.First(ctx, tx, "billing", eventID, body)
//	if err != nil {
//		return err
//	}
//	if first {
//		... // handle the event, in tx
//	}
//	err = tx.Commit() // a duplicate too: it is counted
//
// The consumer's name keeps several consumers apart that share a database. The tables come from outbox/schema
// (`pillarbox migrate`).
//
// # The same event at the same time
//
// A twin is another delivery of the event that is being handled in a transaction that is still open. First waits for its end, for
// Options.Wait (1 s) at most. If it commits, this one is a duplicate; if it rolls back, this one is the first; if neither
// happens in time, First returns ErrInFlight: answer "try again later". In PostgreSQL the transaction is then as good as
// before, and the caller's lock_timeout is what it was. SQLite has one writer at a time, waits for busy_timeout, and cannot tell
// a twin from another writer: both are ErrInFlight. At REPEATABLE READ and above PostgreSQL answers 40001 when a twin has
// committed meanwhile: run the transaction again, or use READ COMMITTED.
//
// # The body
//
// The SHA-256 of the body is kept. The same id with another body is an error of the sender, and is told as ErrDifferentBody: it
// is neither a duplicate nor new. Some envelopes say when they were sent (publishedAt), so that each attempt has another body:
// pass what stays the same, the payload for example, or nil to compare nothing but the id.
//
// # Duplicates
//
// How often an event came again, with the same body, is counted in outbox_inbox_duplicate, for the dashboard. The count is part
// of the transaction: what is rolled back is not counted, and the same duplicate in two transactions at once is like a twin: the
// second waits for the end of the first, or gets ErrInFlight.
//
// # How long
//
// Prune removes old records. What is older than the oldest record is not recognised any more: the age that is kept is the dedup
// window. It must be longer than the sender goes on trying, and longer than anybody may wait before replaying from the
// log: 30 days is a good start. A row takes about 150 bytes with its indexes; a million events a day kept for 30 days are 5 GB.
// The version guard's rows, one per aggregate, are not pruned.
//
// # Versions
//
// An inbox says whether an event is new, not whether it is in order. Where order matters and may be lost on the way (retries
// out of line, a replay, several topics), Guard compares the event's aggregate version with the one applied last: see Verdict.
package inbox
