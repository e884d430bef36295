// Package audit is audit-core: a small stand-in for the audit store of another team, reached over HTTP. It knows nothing of who
// sends. POST /events takes an event with a Bearer token and a signature over the raw body, keeps it once, and chains it: each
// entry holds the hash of the one before, so that none can be changed, added or taken out later without the chain showing it.
//
// It can be told, with PUT /control, to be down, to be slow, to lose answers, and to accept another token.
package audit
