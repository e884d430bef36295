// Package kafka handles the events of Kafka topics once each: the receiving end of transaction → log → lanes → destination →
// outcome → settle.
//
//	poll → queue of the partition → begin, inbox, handler, commit → offset
//	                                          └─ fails: back-off, the partition paused → … → dead-letter topic
//
//	consumer, err := kafka.New(kafka.Config[pgx.Tx]{
//		Brokers: []string{"kafka:9092"},
//		Topics:  []string{"orders"},
//		Group:   "billing",
//		Inbox:   box, // of inbox.New
//		Begin:   outbox.BeginPgx(pool),
//		Handle: func(ctx context.Context, tx pgx.Tx, m kafka.Message) error {
//			... // the change, in tx
//		},
//	})
//	...
//	err = consumer.Run(ctx) // until ctx ends
//
// A Consumer is a member of a consumer group. For each message it begins a transaction of the service's database, asks the inbox
// whether the event is new, calls the handler, commits, and only then lets the offset go forward. An offset that was not
// committed any more (a crash, a lost partition) means that messages come again; the inbox knows them.
//
// Reading order: config.go and consumer.go hold it together; partition.go is the queue and the worker of one partition;
// handle.go is one attempt, failure.go says what it means when that fails, deadletter.go where it ends; message.go and
// stats.go are what goes in and what is told.
//
// # What holds
//
//   - Once. The handler's changes and the inbox's record are committed together or not at all. A handler that returns an error,
//     panics or takes too long leaves nothing behind.
//   - Order. The messages of a partition are handled one after the other, in the order of their offsets; a message that fails
//     holds up those behind it until it is handled or dead-lettered. Partitions are handled side by side.
//   - One bad message, or one partition whose dead-letter topic is away, holds up its own partition alone.
//   - What is not the message's fault costs it nothing: while the database is away, while a twin is handled elsewhere, or when the
//     handler says TryAgain, it is tried again for as long as it takes.
//   - Nothing is dropped. A message ends handled, known as a duplicate, or acknowledged by all replicas of the dead-letter topic.
//   - Rebalances are cooperative: partitions that stay are not interrupted. Of one that goes, the transaction under way may finish
//     within Config.Finish, or is rolled back; then its offset is committed, and the partition is let go.
//   - Memory is bounded: for each partition a queue (Config.QueueRecords, Config.QueueBytes, exceeded by one fetch at
//     most), for each broker one fetch (Config.FetchBytes).
//
// # Dead letters
//
// A dead letter is the message as it was, key, value and headers, with headers that say why and where it came from: see
// HeaderCode. The reason is the error's text: a handler keeps secrets out of it. Its inbox record was rolled back, so it can be sent to its topic again, when what was wrong is put right. A crash
// between the dead letter and its offset writes it twice; the three headers of where it came from tell so. What comes behind it in the
// partition goes on: a handler of the same aggregate then sees a gap in the versions (see inbox.Gap).
//
// # Not promised
//
// Attempts are counted in memory: after a restart or a rebalance the count begins again. A message that ends the process, rather
// than the handler, is not recognised as poison. What a handler does outside of its transaction (calls, mails) is
// repeated with each attempt.
package kafka
