// Package outbox writes events in the transaction that makes them true. It is what a service imports, and it has no
// dependency but the standard library.
//
//	transaction → log → lanes → destination → outcome → settle
//	└─ Enqueue ────┘
//
// A service changes its state and calls Enqueue in the same transaction. When the transaction commits, the event is in the log
// (the table outbox_event), and the relay carries it to every destination that wants it, at least once and in order per Key.
// When the transaction rolls back, or the savepoint within which Enqueue was called does, there never was an event.
//
//	box, err := outbox.New(outbox.Postgres, outbox.Options{Schema: "integration"})
//	...
//	tx, err := db.BeginTx(ctx, nil)
//	...  // change the state, in tx
//	_, err = box.Enqueue(ctx, tx, outbox.Event{Topic: "cases", Key: caseID, Type: "CaseAccepted", Payload: payload})
//	...
//	err = tx.Commit()
//
// With pgx, without database/sql:
//
//	_, err = box.Enqueue(ctx, outbox.Pgx(tx), event)
//
// Only a transaction is taken: a pool, a connection and *sql.DB do not compile (see Tx). The tables come from outbox/schema
// (`pillarbox migrate`).
//
// # What a call costs
//
// One INSERT for up to 16 events, a few for more: see Outbox.Enqueue. It takes no lock that serialises producers and waits for no
// destination. A relay that runs in the service's own process is woken by the service, with the relay's Wake, after the
// commit. One that runs elsewhere polls while there is work, and is notified by Enqueue's statement while it sleeps.
//
// # Order
//
// Events of one Key are delivered in the order in which their transactions committed, provided that those transactions exclude
// each other, as they do when both update the aggregate's row (or lock it, or insert it) before they call Enqueue. Events with
// the empty Key have no order.
//
// # Duplicates
//
// An event's ID is its identity for ever: receivers handle it once by it. Enqueue makes one (UUIDv7) unless the service brings
// its own. DedupKey makes an event unique by what it says, "CaseAccepted/CASE-1/4" for example: a second one with the same key
// is reported as a Duplicate and not written, and the transaction goes on. Both hold as long as the first event is in the log;
// retention takes old ones away.
//
// # Limits
//
//   - seq, the event's number in the log, must come from its default. An INSERT that chooses a number can be missed by the relay;
//     `pillarbox migrate --print-roles` grants a service no right to do so.
//   - While another open transaction holds an event with the same ID or DedupKey, Enqueue waits for its end, as for any unique
//     key. At REPEATABLE READ and above PostgreSQL then answers with an error (40001): run the transaction again.
//   - PREPARE TRANSACTION refuses a transaction that has notified. Services with two-phase commit set Options.NoNotify.
//   - With synchronous_commit = off, or after a failover to an asynchronous replica, the database itself may lose a transaction
//     that it has reported as committed, while its event was delivered.
//   - SQLite has one writer at a time: begin the transaction as a writer (BEGIN IMMEDIATE) when it reads first.
package outbox
