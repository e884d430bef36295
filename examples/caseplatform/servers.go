package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"golang.org/x/sync/errgroup"

	"github.com/pillarbox-dev/pillarbox/internal/kafkatest"
	"github.com/pillarbox-dev/pillarbox/internal/pgtest"
)

// servers are the PostgreSQL and the Kafka that the demo has started; nil: they were there.
type servers struct {
	postgres *pgtest.Server
	kafka    *kafkatest.Cluster
}

// startServers starts what the settings do not name, and fills it in. The service and the workflow engine get a database each.
func startServers(ctx context.Context, s *settings) (*servers, error) {
	started := &servers{}
	var starting errgroup.Group
	if s.database == "" {
		starting.Go(func() (err error) {
			if started.postgres, err = pgtest.Start(pgtest.Options{}); err != nil {
				return err
			}
			if s.database, err = started.postgres.CreateDatabase(ctx, "caseplatform"); err != nil {
				return err
			}
			s.workflow, err = started.postgres.CreateDatabase(ctx, "workflow")
			return err
		})
	}
	if len(s.brokers) == 0 {
		starting.Go(func() (err error) {
			if started.kafka, err = kafkatest.Start(kafkatest.Options{}); err == nil {
				s.brokers = started.kafka.Seeds()
			}
			return err
		})
	}
	if err := starting.Wait(); err != nil {
		return nil, errors.Join(err, started.stop())
	}
	return started, nil
}

func (s *servers) stop() error {
	var problems []error
	if s.kafka != nil {
		problems = append(problems, s.kafka.Stop())
	}
	if s.postgres != nil {
		problems = append(problems, s.postgres.Stop())
	}
	return errors.Join(problems...)
}

// createTopics makes the topic of the cases' lives and the one for what the workflow engine cannot handle. Neither the relay nor
// the consumer makes topics: somebody decides about partitions, replicas and how long they keep.
func createTopics(ctx context.Context, brokers []string) error {
	client, err := kgo.NewClient(kgo.SeedBrokers(brokers...))
	if err != nil {
		return err
	}
	defer client.Close()
	const partitions, replicas = 3, -1 // as many replicas as the cluster makes by default
	admin := kadm.NewClient(client)
	made, err := admin.CreateTopics(ctx, partitions, replicas, nil, lifecycleTopic, lifecycleTopic+".dead-letter")
	if err != nil {
		return fmt.Errorf("create the topics: %w", err)
	}
	for _, topic := range made {
		if topic.Err != nil && !errors.Is(topic.Err, kerr.TopicAlreadyExists) {
			return fmt.Errorf("create the topic %s: %w", topic.Topic, topic.Err)
		}
	}
	return nil
}
