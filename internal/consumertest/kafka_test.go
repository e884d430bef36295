package consumertest

import (
	"context"
	"database/sql"
	"log/slog"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/pillarbox-dev/pillarbox/consumer/kafka"
	"github.com/pillarbox-dev/pillarbox/internal/kafkatest"
	"github.com/pillarbox-dev/pillarbox/outbox"
)

// member is a consumer at work.
type member struct {
	*kafka.Consumer[*sql.Tx]
	cancel context.CancelFunc
	done   chan error
}

// group is a consumer group whose members come and go.
type group struct {
	w       *world
	cluster *kafkatest.Cluster
	topic   string
	all     []*member // those that are gone as well
	present []*member
}

func (g *group) join() {
	g.w.t.Helper()
	batch := 1
	if len(g.all)%2 == 1 {
		batch = 50
	}
	consumer, err := kafka.New(kafka.Config[*sql.Tx]{
		Brokers: g.cluster.DirectSeeds(), Topics: []string{g.topic}, Group: g.topic, Consumer: "consumer", Inbox: g.w.box,
		Begin: outbox.BeginSQL(g.w.db, nil), Batch: batch, RetryMin: 10 * time.Millisecond, Log: slog.New(slog.DiscardHandler),
		Handle: func(ctx context.Context, tx *sql.Tx, m kafka.Message) error {
			return g.w.apply(ctx, tx, m.EventID, m.Value)
		},
	})
	if err != nil {
		g.w.t.Error(err) // not from the test's goroutine
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	m := &member{Consumer: consumer, cancel: cancel, done: make(chan error, 1)}
	go func() { m.done <- consumer.Run(ctx) }()
	g.all, g.present = append(g.all, m), append(g.present, m)
}

func (g *group) leave() {
	g.w.t.Helper()
	i := rand.IntN(len(g.present))
	m := g.present[i]
	g.present = append(g.present[:i], g.present[i+1:]...)
	m.cancel()
	if err := <-m.done; err != nil {
		g.w.t.Errorf("a member left with %v", err)
	}
}

// churn lets members come and go until quit is closed, and then lets all go.
func (g *group) churn(quit <-chan struct{}) {
	for range 3 {
		g.join()
	}
	for {
		select {
		case <-quit:
			for len(g.present) > 0 {
				g.leave()
			}
			return
		case <-time.After(time.Second + rand.N(2*time.Second)):
		}
		if len(g.present) > 2 {
			g.leave()
		} else {
			g.join()
		}
	}
}

func (g *group) stats() (s kafka.Stats) {
	for _, m := range g.all {
		one := m.Stats()
		s.Handled += one.Handled
		s.Duplicates += one.Duplicates
		s.Failed += one.Failed
		s.DeadLettered += one.DeadLettered
		s.Revoked += one.Revoked
	}
	return s
}

func TestKafka(t *testing.T) {
	w, cluster := newWorld(t), kafkatest.Shared(t)
	g := &group{w: w, cluster: cluster, topic: cluster.Topic(t, 6)}
	must(t, cluster.CreateTopic(t.Context(), g.topic+".dead-letter", 1, nil))
	quit, gone := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(gone)
		g.churn(quit)
	}()
	t.Cleanup(func() { <-gone })
	func() {
		defer close(quit)
		w.carry(relayArgs{Brokers: cluster.DirectSeeds(), Topic: g.topic})
	}()
	<-gone
	s := g.stats()
	w.judge(int(s.Duplicates))
	if s.DeadLettered > 0 || s.Revoked == 0 || s.Failed == 0 || s.Handled != uint64(w.events) {
		t.Errorf("got %+v, want rebalances, failures, and no dead letter", s)
	}
	t.Logf("%d members came and went, %d partitions were revoked, %d attempts failed", len(g.all), s.Revoked, s.Failed)
}
