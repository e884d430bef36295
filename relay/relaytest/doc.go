// Package relaytest tests what plugs into package relay, and the relay itself.
//
//   - [Memory] is a relay.Store in memory. It models PostgreSQL's transactions as far as the log needs
//     them: numbers commit in any order, numbers get lost, and a late commit has a low number.
//   - [TestStore] and [TestDestination] are the conformance suites that every store and every
//     destination passes.
//   - [FaultyStore], [FaultyDestination] and [LateStore] inject what goes wrong in production: errors,
//     lost answers, delays, hangs, and a crash at a named [Point].
//   - [Bugs] are what a relay could do wrong, as wrappers.
//
// Its own tests simulate whole relays in a hostile world: relays that die, freeze and are cut off,
// producers that commit late and roll back, endpoints that are down, silent or full of poison, an
// operator. Time is virtual (testing/synctest), so that thousands of runs take a minute. The promises
// of the design are the invariants, and each planted bug must break one of them.
//
// Nothing in it is for use outside of tests.
package relaytest
