// Package consumertest holds both ways of receiving, the HTTP receiver and the Kafka consumer, to the inbox's promise: every event
// is handled once, and the versions of an aggregate never go back. A real relay carries a log from PostgreSQL, in a process of
// its own that is killed on the way and takes up where its predecessor stood; one delivery in ten is made again later, in
// between others; members of the consumer group come and go.
//
//	go test ./internal/consumertest -deliveries 100000
package consumertest
