package kafka

import (
	"context"
	"database/sql"
	"strings"
	"testing"
	"time"

	"github.com/pillarbox-dev/pillarbox/outbox"
	"github.com/pillarbox-dev/pillarbox/outbox/inbox"
)

func TestConfigSaysAllProblemsAtOnce(t *testing.T) {
	_, err := New(Config[*sql.Tx]{
		MaxAttempts: -1, Batch: 1001, Concurrency: -1, QueueRecords: 10, QueueBytes: 1, FetchBytes: 1, FetchPartitionBytes: 1 << 20,
		RetryMin: time.Nanosecond, RetryMax: 25 * time.Hour, HandleTimeout: -1, CommitInterval: 1, Finish: time.Minute,
		SessionTimeout: 1, Consumer: strings.Repeat("x", 256), Topics: []string{"a b", "a", "dead"}, DeadLetterTopic: "dead",
	})
	if err == nil {
		t.Fatal("it was taken")
	}
	for _, want := range []string{
		"Brokers is empty", "Group is empty", "Inbox is nil", "Begin is nil", "Handle is nil", "Consumer has 256 bytes",
		`topic "a b"`, `go to "dead", which is consumed too`, "MaxAttempts is -1", "Batch is 1001", "Concurrency is -1", "QueueRecords is 10",
		"QueueBytes is 1", "FetchBytes is 1", "FetchPartitionBytes is 1048576", "RetryMin is 1ns", "RetryMax is 25h0m0s",
		"HandleTimeout is -1ns", "CommitInterval is 1ns", "Finish is 1m0s", "SessionTimeout is 1ns",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("got %v\nwant %q in it", err, want)
		}
	}
	if strings.Contains(err.Error(), "Topics is empty") {
		t.Errorf("got %v, which is too much", err)
	}
}

func TestConfigDefaults(t *testing.T) {
	box, err := inbox.New(outbox.Postgres, inbox.Options{})
	must(t, err)
	c, err := New(Config[*sql.Tx]{
		Brokers: []string{"localhost:9092"}, Topics: []string{"orders"}, Group: "billing", Inbox: box, Begin: outbox.BeginSQL(nil, nil),
		Handle: func(context.Context, *sql.Tx, Message) error { return nil },
	})
	must(t, err)
	if c.Consumer != "billing" || c.EventIDHeader != "eventId" || c.deadLetterTopic("orders") != "orders.dead-letter" ||
		c.MaxAttempts != 5 || c.RetryMax != 30*time.Second || c.Batch != 1 || c.QueueRecords != 1000 || c.Finish != 10*time.Second {
		t.Errorf("got %+v", c.Config)
	}
}

func TestBackoffDoublesUpToItsBound(t *testing.T) {
	c := Consumer[*sql.Tx]{Config: Config[*sql.Tx]{RetryMin: time.Second, RetryMax: 5 * time.Second}}
	for n, want := range map[int]time.Duration{1: 1, 2: 2, 3: 4, 4: 5, 1000: 5} {
		if got := c.backoff(n); got != want*time.Second {
			t.Errorf("backoff(%d) = %v, want %v", n, got, want*time.Second)
		}
	}
}
