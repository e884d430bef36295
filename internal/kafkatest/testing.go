package kafkatest

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// shared starts, at its first call, the one broker that all tests of a binary use. It needs no TestMain: it ends with the
// process.
var shared = sync.OnceValues(func() (*Cluster, error) { return Start(Options{Proxy: true}) })

// Shared returns the broker that all tests of the binary use, with a proxy before it. A test must not restart the broker, and
// leave the proxy open.
func Shared(t testing.TB) *Cluster {
	t.Helper()
	c, err := shared()
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// New starts a cluster for one test, which stops it at its end. When the test has failed, the logs are shown.
func New(t testing.TB, opts Options) *Cluster {
	t.Helper()
	c, err := Start(opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(c.Log())
		}
		if err := c.Stop(); err != nil {
			t.Error(err)
		}
	})
	return c
}

// Topic makes a topic for a test. It stays until the cluster is stopped.
func (c *Cluster) Topic(t testing.TB, partitions int32) string {
	t.Helper()
	return c.TopicWith(t, partitions, nil)
}

// TopicWith makes a topic with settings of its own.
func (c *Cluster) TopicWith(t testing.TB, partitions int32, config map[string]string) string {
	t.Helper()
	name := fmt.Sprintf("%s.%d", topicName(t.Name()), c.topics.Add(1))
	if err := c.CreateTopic(context.Background(), name, partitions, config); err != nil {
		t.Fatal(err)
	}
	return name
}

// Records returns what the topic holds when it holds n records or more. It waits for them for a minute.
func (c *Cluster) Records(t testing.TB, topic string, n int) []*kgo.Record {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	records, err := c.ReadAll(ctx, topic, n)
	if err != nil {
		t.Fatal(err)
	}
	return records
}

// topicName makes a short plain name out of a test's.
func topicName(test string) string {
	name := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			return r
		}
		return '-'
	}, strings.ToLower(test))
	return name[:min(len(name), 60)]
}
