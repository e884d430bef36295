package kafka

import (
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kgo"
)

// Client returns a client of the same brokers, with the same trust and credentials, for those who only look: at the lag of consumer
// groups, at what topics hold. It does not connect before it is used. Close it.
func (c Config) Client() (*kgo.Client, error) {
	c = c.withDefaults()
	if err := errors.Join(c.problems()...); err != nil {
		return nil, fmt.Errorf("kafka: %w", err)
	}
	client, err := kgo.NewClient(append(c.security(),
		kgo.SeedBrokers(c.Brokers...), kgo.ClientID(c.ClientID), kgo.SoftwareNameAndVersion("pillarbox", "1"), kgo.DisableClientMetrics(),
		kgo.RetryBackoffFn(backoff), kgo.RequestRetries(dialTries-1))...)
	if err != nil {
		return nil, fmt.Errorf("kafka: %w", err)
	}
	return client, nil
}
