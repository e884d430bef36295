package wire

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/pillarbox-dev/pillarbox/dashboard"
	"github.com/pillarbox-dev/pillarbox/internal/config"
	"github.com/pillarbox-dev/pillarbox/internal/telemetry"
	"github.com/pillarbox-dev/pillarbox/ops"
)

// impactTimeout bounds the look at one consumer.
const impactTimeout = 3 * time.Second

// impact looks at what has become of events on the other side: the lag of consumer groups, dead letters, inboxes.
type impact struct {
	consumers []consumerLook
	metrics   *telemetry.Metrics
	closers   []func()
}

// consumerLook is one consumer and where to look. What could not be opened is its problem, and none of the relay's.
type consumerLook struct {
	config.Consumer
	kafka   *kadm.Client
	inbox   *ops.Ops
	problem error
}

// newImpact opens what is looked at; in Kafka and PostgreSQL that does not connect yet. own is the outbox's database.
func newImpact(ctx context.Context, c *config.Config, own *ops.Ops, metrics *telemetry.Metrics) *impact {
	i := &impact{metrics: metrics}
	clients := map[string]*kadm.Client{}
	for _, consumer := range c.Consumers {
		look := consumerLook{Consumer: consumer}
		if consumer.Group+consumer.DeadLetterTopic != "" {
			look.kafka, look.problem = i.client(clients, c, consumer.Destination)
		}
		if consumer.Inbox != nil {
			var err error
			look.inbox, err = i.openInbox(ctx, consumer.Inbox.Database, own)
			look.problem = errors.Join(look.problem, err)
		}
		i.consumers = append(i.consumers, look)
	}
	return i
}

// client makes one client for each destination.
func (i *impact) client(clients map[string]*kadm.Client, c *config.Config, destination string) (*kadm.Client, error) {
	if clients[destination] == nil {
		client, err := c.Destinations[destination].Kafka.Config().Client()
		if err != nil {
			return nil, err
		}
		clients[destination] = kadm.NewClient(client)
		i.closers = append(i.closers, client.Close)
	}
	return clients[destination], nil
}

func (i *impact) openInbox(ctx context.Context, db *config.Database, own *ops.Ops) (*ops.Ops, error) {
	if db == nil {
		return own, nil
	}
	pool, err := openInbox(ctx, *db)
	if err != nil {
		return nil, fmt.Errorf("open the inbox's database: %w", err)
	}
	i.closers = append(i.closers, func() { _ = pool.Close() })
	return ops.New(pool, db.Dialect(), db.SchemaName())
}

func (i *impact) close() {
	for _, done := range i.closers {
		done()
	}
}

// look asks all at once. One that does not answer has a problem; it keeps nobody from seeing the others.
func (i *impact) look(ctx context.Context) ([]dashboard.Consumer, error) {
	all := make([]dashboard.Consumer, len(i.consumers))
	var looking sync.WaitGroup
	for n, consumer := range i.consumers {
		looking.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, impactTimeout)
			defer cancel()
			all[n] = consumer.look(ctx)
			all[n].PossibleDuplicates, all[n].HasDuplicates = i.metrics.PossibleDuplicates(consumer.Destination), true
		})
	}
	looking.Wait()
	return all, nil
}

func (l consumerLook) look(ctx context.Context) dashboard.Consumer {
	seen := dashboard.Consumer{Destination: l.Destination, Group: l.Group, DeadLetterTopic: l.DeadLetterTopic}
	problems := []error{l.problem}
	if l.kafka != nil {
		lag, letters := l.lag(ctx, &seen), l.deadLetters(ctx, &seen)
		seen.LagKnown, seen.LettersKnown = lag == nil, letters == nil
		problems = append(problems, lag, letters)
	}
	if l.Inbox != nil {
		seen.Inbox = l.Inbox.Consumer
	}
	if l.inbox != nil {
		inbox, err := l.inbox.Inbox(ctx, seen.Inbox)
		seen.Handled, seen.Duplicates, seen.LastHandled, seen.InboxKnown = inbox.Handled, inbox.Duplicates, inbox.Last, err == nil
		problems = append(problems, err)
	}
	if err := errors.Join(problems...); err != nil {
		seen.Problem = sentences(err)
	}
	return seen
}

// lag asks how far the group has come.
func (l consumerLook) lag(ctx context.Context, seen *dashboard.Consumer) error {
	if l.Group == "" {
		return nil
	}
	groups, err := l.kafka.Lag(ctx, l.Group)
	if err == nil {
		group := groups[l.Group]
		err = group.Error()
		if err == nil {
			seen.State, seen.Members, seen.Lag = strings.ToLower(group.State), len(group.Members), group.Lag.Total()
			seen.Topics = topicLags(group.Lag)
		}
	}
	switch {
	case errors.Is(err, kerr.CoordinatorNotAvailable), errors.Is(err, kerr.GroupIDNotFound):
		return fmt.Errorf("no consumer has come as %s yet: check the name, and that one runs", l.Group)
	case err != nil:
		return fmt.Errorf("the lag of %s is not known: %w", l.Group, err)
	}
	return nil
}

func topicLags(lag kadm.GroupLag) (all []dashboard.TopicLag) {
	partitions := map[string]int{}
	for _, p := range lag.Sorted() {
		partitions[p.Topic]++
	}
	for _, t := range lag.TotalByTopic().Sorted() {
		all = append(all, dashboard.TopicLag{Topic: t.Topic, Partitions: partitions[t.Topic], Lag: t.Lag})
	}
	return all
}

// deadLetters counts what the dead-letter topic holds.
func (l consumerLook) deadLetters(ctx context.Context, seen *dashboard.Consumer) error {
	if l.DeadLetterTopic == "" {
		return nil
	}
	first, err := l.kafka.ListStartOffsets(ctx, l.DeadLetterTopic)
	if err == nil {
		err = first.Error()
	}
	var end kadm.ListedOffsets
	if err == nil {
		end, err = l.kafka.ListEndOffsets(ctx, l.DeadLetterTopic)
	}
	if err == nil {
		err = end.Error()
	}
	if err != nil {
		return fmt.Errorf("the topic %s cannot be looked at: %w", l.DeadLetterTopic, err)
	}
	end.Each(func(o kadm.ListedOffset) {
		if from, ok := first.Lookup(o.Topic, o.Partition); ok {
			seen.DeadLetters += max(0, o.Offset-from.Offset)
		}
	})
	return nil
}

// sentences puts joined errors on one line.
func sentences(err error) string {
	text := strings.Join(strings.Split(err.Error(), "\n"), "; ")
	return strings.ToUpper(text[:1]) + text[1:] + "."
}
