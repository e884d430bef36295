// Package envelope makes what is sent of an event. It stands between the lanes and a destination:
//
//	transaction → log → lanes → destination → outcome → settle
//	                     event ─ Wrap ─▶ Message
//
// There are five envelopes, chosen by name:
//
//   - payload: the producer's bytes as they are.
//   - envelope: one JSON object with the event's fields around the payload.
//   - cloudevents: CloudEvents 1.0 (specification 1.0.2), structured or binary, in the bindings of Kafka and HTTP.
//   - jq: whatever a jq expression makes of the event.
//   - debezium: the record that Debezium's outbox event router writes, so that its consumers need not change.
//
// # What holds
//
// Numbers keep every digit, members keep their order, and a payload keeps its bytes, white space and odd escapes included, with
// two exceptions. Debezium's expanded payload is written without white space and with Debezium's escapes, because its records
// are; see Debezium for where ours differ. jq computes with decimals as float64 and sorts the members of objects that the
// expression itself makes or changes; see JQ for what stays exact.
//
// An event that cannot be wrapped gives an *InvalidError, which is about the event and final: Outcome makes a Reject with the
// code ENVELOPE_INVALID of it. No error shows what a payload says, but for a character that JSON does not allow, and
// what a jq expression itself puts into error(…).
//
// # Reading order
//
// envelope.go has what all of them share, invalid.go what can go wrong; then one file for each envelope. The package jsontext
// reads and writes the JSON.
package envelope
