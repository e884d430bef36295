// Package contract holds events to their contracts: JSON Schemas, by schema_ref.
//
//	transaction → log → lanes → destination → outcome → settle
//	└ Checked      └ Judge
//
// A contract is checked before an event is published (Contracts.Judge), because the log may be filled by an old release, a
// repair or a script; and, if a service wants it, before the event is written (Checked). A breach is final: the event is
// quarantined as SCHEMA_INVALID, with the JSON Pointer of the field that broke it and never with what the field says.
//
// # The folder
//
//	contracts/
//	  reg.case.lifecycle.CaseAccepted.v1.json     the schema of the schema_ref of that name
//	  billing/billing.Invoice.v2.json             folders are for order; a schema_ref may also be billing/billing.Invoice.v2
//	  common/address.json                         referred to by others: {"$ref": "common/address.json#/$defs/street"}
//	  samples/reg.case.lifecycle.CaseAccepted.v1/
//	    full.json                                 payloads that must pass
//	    no-amount.invalid.json                    and that must not
//
// Schemas are of the drafts 2020-12 (taken when there is no $schema) and draft-07. A $ref leads to a file of the folder,
// relative to the file or to its $id; nothing is ever loaded from anywhere else. Formats are asserted. Names that begin with a
// dot are passed over, which also suits a mounted Kubernetes ConfigMap.
//
// # What is checked
//
// Numbers are compared exactly, whatever their size; one of more than 1,000 characters or with an exponent beyond ±1,000 is a
// breach. So are two members of one name in one object, since what such an object says depends on who reads it, and a payload
// that is not JSON where a contract is. An event without a payload (a tombstone) passes. Patterns are Go's regular expressions
// (RE2): no look-ahead.
//
// # Reading order
//
// folder.go and compile.go load, check.go and breach.go judge, enqueue.go is for services. compare.go says what a change of a
// schema breaks, and report.go is `pillarbox contract check`.
package contract
