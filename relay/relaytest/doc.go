// Package relaytest tests what plugs into package relay, and the relay itself.
//
//   - [Memory] is a relay.Store in memory. It models PostgreSQL's transactions as far as the log needs
//     them: numbers commit in any order, numbers get lost, and a late commit has a low number.
//   - [TestStore] and [TestDestination] are the conformance suites that every store and every
//     destination passes.
//
// Nothing in it is for use outside of tests.
package relaytest
