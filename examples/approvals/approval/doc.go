// Package approval keeps approvals, and tells an audit store what becomes of them.
//
//	PENDING ── enough have agreed ──▶ APPROVED ──▶ CONSUMED | SUPERSEDED | REVOKED
//	   └────────────── the clock crosses expires_at ──┴──▶ EXPIRED (seen, never written, and no event)
//
// Issuance (the step to APPROVED), use, supersession and revocation are each one transaction: the change of the row, a line of
// the history, and the event, written by the outbox library. When the event cannot be written, the change is not made. Nothing
// here knows whether the audit store can be reached: the relay carries the events there, later.
//
// One code base serves PostgreSQL and SQLite: what differs stands in postgres/*.sql and sqlite/*.sql.
package approval
