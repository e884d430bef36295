// Package kafka publishes events to Apache Kafka: the destination end of transaction → log → lanes → destination →
// outcome → settle. A call of Deliver becomes one record batch for each partition, and what the broker says of it one relay.Outcome
// for each event.
//
// Reading order: config.go and destination.go hold a delivery together; call.go is one call of Deliver, from its events to
// their outcomes; message.go makes records, partition.go and topics.go say where they go, producer.go sends them, failure.go
// says what it means when that fails; security.go has TLS and SASL.
//
// # What holds
//
//   - acks=all and idempotence are not optional. A topic is never created.
//   - A record gets the partition that the Java client would give it.
//   - Order. A call sends in waves. A wave has at most one record batch for each partition, and what it takes of a lane
//     stands in one of them. A record batch is written as a whole or not at all, and the next wave begins when the outcome of
//     this one is known. So nothing of a lane is ever written before what stands in front of it, whatever fails: a partition, a
//     record, a topic. Usually there is one wave.
//   - A record that spoils its batch is found by halving: the others of the batch are published, and it alone is rejected.
//   - Nothing hangs. A call ends by its deadline. A producer that did not end well is thrown away with all that it still
//     held, and the next call gets a new one; so a producer that is fenced or out of sequence is replaced too.
//   - No secret gets into an outcome, an error or a log.
//
// # Timeouts
//
// The delivery timeout is the relay's timeout for the destination, 10 s by default. Kafka's usual 120 s needs a lease of
// which it is two thirds: relay.lease 3m and timeout 120s. Then a broker that is away for less costs no attempt, but a relay
// that dies is replaced later.
package kafka
