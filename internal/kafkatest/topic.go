package kafkatest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Client makes a client that goes past the proxy. The caller closes it.
func (c *Cluster) Client(opts ...kgo.Opt) (*kgo.Client, error) {
	return kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(c.DirectSeeds()...), kgo.MetadataMinAge(100 * time.Millisecond)}, opts...)...)
}

// CreateTopic makes a topic, with a replica on each of at most three brokers, and returns when every partition has a leader.
func (c *Cluster) CreateTopic(ctx context.Context, name string, partitions int32, config map[string]string) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	client, err := c.Client()
	if err != nil {
		return err
	}
	defer client.Close()
	admin := kadm.NewClient(client)
	settings := map[string]*string{}
	for key, value := range config {
		settings[key] = &value
	}
	replicas, made := int16(min(len(c.Brokers), 3)), false
	for {
		if !made {
			_, err = admin.CreateTopic(ctx, partitions, replicas, settings, name)
			made = err == nil
		}
		if made {
			_, err = c.leaders(ctx, admin, name, partitions)
		}
		switch {
		case err == nil:
			return nil
		case !made && !errors.Is(err, kerr.InvalidReplicationFactor): // a broker that has just started does not count yet
			return fmt.Errorf("create topic %s: %w", name, err)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("create topic %s: %w", name, errors.Join(err, ctx.Err()))
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// AddUser lets a user in by SCRAM.
func (c *Cluster) AddUser(ctx context.Context, user, password string) error {
	client, err := c.Client()
	if err != nil {
		return err
	}
	defer client.Close()
	for _, mechanism := range []kadm.ScramMechanism{kadm.ScramSha256, kadm.ScramSha512} { // a request names a user once
		credential := kadm.UpsertSCRAM{User: user, Mechanism: mechanism, Iterations: 4096, Password: password}
		altered, err := kadm.NewClient(client).AlterUserSCRAMs(ctx, nil, []kadm.UpsertSCRAM{credential})
		if err == nil {
			err = altered.Error()
		}
		if err != nil {
			return fmt.Errorf("add user %s: %w", user, err)
		}
	}
	return nil
}

// Leader returns the broker that leads a partition.
func (c *Cluster) Leader(ctx context.Context, topic string, partition int32) (*Broker, error) {
	client, err := c.Client()
	if err != nil {
		return nil, err
	}
	defer client.Close()
	leaders, err := c.leaders(ctx, kadm.NewClient(client), topic, partition+1)
	if err != nil {
		return nil, err
	}
	return leaders[partition], nil
}

func (c *Cluster) leaders(ctx context.Context, admin *kadm.Client, topic string, partitions int32) ([]*Broker, error) {
	details, err := admin.ListTopics(ctx, topic)
	if err != nil {
		return nil, err
	}
	leaders := make([]*Broker, partitions)
	for i := range leaders {
		p, known := details[topic].Partitions[int32(i)]
		if !known || p.Err != nil || p.Leader < 1 || int(p.Leader) > len(c.Brokers) {
			return nil, errors.Join(fmt.Errorf("partition %d of %s has no leader", i, topic), p.Err)
		}
		leaders[i] = c.Brokers[p.Leader-1]
	}
	return leaders, nil
}

// awaitAll returns when the controller counts every broker in.
func (c *Cluster) awaitAll() error {
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	client, err := c.Client()
	if err != nil {
		return err
	}
	defer client.Close()
	admin := kadm.NewClient(client)
	for {
		up, err := admin.ListBrokers(ctx)
		if err == nil && len(up) == len(c.Brokers) {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%d of %d brokers within %v: %w\n%s", len(up), len(c.Brokers), startTimeout,
				errors.Join(err, ctx.Err()), c.Log())
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// ReadAll returns what the topic holds, each partition in its order, when it holds n records or more.
func (c *Cluster) ReadAll(ctx context.Context, topic string, n int) ([]*kgo.Record, error) {
	client, err := c.Client(kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		return nil, err
	}
	defer client.Close()
	var all []*kgo.Record
	for len(all) < n {
		fetches := client.PollFetches(ctx)
		if err := ctx.Err(); err != nil {
			return all, fmt.Errorf("%d of %d records of %s: %w", len(all), n, topic, err)
		}
		if err := fetches.Err(); err != nil {
			return all, fmt.Errorf("read %s: %w", topic, err)
		}
		all = append(all, fetches.Records()...)
	}
	return all, nil
}
