// Package crashtest kills, stops and restarts real processes while events are on their way, and compares what was committed
// with what the receiver's inbox holds: none lost, none false, order per key kept, nothing sent twice but what was in flight.
//
//	producers ──▶ SQLite or PostgreSQL ──▶ relay (a process of its own) ──▶ receiver ──▶ inbox
//	     ✗ before commit      ✗ before read   ✗ before deliver   ✗ before settle   ✗ after settle
//
// The relay is the test binary itself, started again (see TestMain): relay.New(...).Run with the store under test, a
// destination that posts to the receiver over loopback HTTP, and the faults of relaytest, which end the process with SIGKILL.
//
// There is nothing here but tests.
package crashtest
