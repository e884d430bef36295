// Package kafkatest starts real Apache Kafka brokers (KRaft, no ZooKeeper) for tests and benchmarks.
//
// A cluster of one broker, or of several, lives in a temporary folder and listens on free ports of 127.0.0.1. Topics are never
// created by themselves. It is gone, folder included, when Stop returns or when the process that started it ends in any way.
//
// A test wants a topic of its own in the broker that the tests of one binary share:
//
//	cluster := kafkatest.Shared(t)
//	topic := cluster.Topic(t, 6)
//
// A test that restarts its broker, or needs several, has its own:
//
//	cluster := kafkatest.New(t, kafkatest.Options{Brokers: 3})
//	err := cluster.Brokers[0].Kill()
//
// A program without a testing.TB uses Start and Stop.
//
// The version is pinned in pom.xml. Maven fetches it once into .cache of the repository; where java or mvn is missing the test
// fails: it is never skipped.
package kafkatest

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/pillarbox-dev/pillarbox/internal/serverlog"
)

// Options say how a cluster is made. The zero value is what most tests want.
type Options struct {
	// Brokers is how many there are; each is a controller too. Default 1.
	Brokers int
	// Heap is the most memory that a broker's JVM takes for objects. Default 384m.
	Heap string
	// Settings go to server.properties of each broker, on top of the defaults.
	Settings map[string]string
	// Proxy puts a proxy before the only broker, which clients of Seeds then reach through it alone.
	Proxy bool
}

// Cluster is brokers that know each other.
type Cluster struct {
	Brokers []*Broker
	// Proxy stands before the broker; nil without Options.Proxy.
	Proxy *Proxy

	dir    string
	lib    string
	guard  *guard
	topics atomic.Int64
}

// How long a broker may take to start or to stop, and any other program of Kafka's to end.
const (
	startTimeout = 90 * time.Second
	stopTimeout  = 60 * time.Second
)

// Start makes a cluster and returns when it takes records. The caller owes it a Stop.
func Start(opts Options) (*Cluster, error) {
	if opts.Brokers == 0 {
		opts.Brokers = 1
	}
	if opts.Heap == "" {
		opts.Heap = "384m"
	}
	if opts.Proxy && opts.Brokers > 1 {
		return nil, errors.New("kafkatest: a proxy is for one broker")
	}
	lib, err := fetch("kafka-"+version, "kafka_*.jar", pom)
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "kafkatest")
	if err != nil {
		return nil, fmt.Errorf("make a folder for Kafka: %w", err)
	}
	c := &Cluster{dir: dir, lib: lib}
	if c.guard, err = startGuard(dir); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	if err := c.create(opts); err != nil {
		return nil, errors.Join(err, c.Stop())
	}
	return c, nil
}

// create makes the brokers, formats their storage and starts them. Somebody else may take a free port before a broker does,
// so a failed first start is tried again on other ports.
func (c *Cluster) create(opts Options) (err error) {
	for try := range 2 {
		if err = c.prepare(opts, fmt.Sprint("try", try)); err != nil {
			return err
		}
		if err = c.each((*Broker).Up); err == nil {
			return c.awaitAll()
		}
		for _, b := range c.Brokers {
			_ = b.Kill()
		}
		if c.Proxy != nil {
			c.Proxy.close()
		}
	}
	return err
}

// prepare chooses ports, writes the settings and formats the storage.
func (c *Cluster) prepare(opts Options, sub string) error {
	clusterID := randomID()
	c.Brokers = make([]*Broker, opts.Brokers)
	var controllers, bootstrap []string
	for i := range c.Brokers {
		b, err := newBroker(c, i+1, filepath.Join(c.dir, sub, fmt.Sprint("broker", i+1)), opts.Heap)
		if err != nil {
			return err
		}
		c.Brokers[i] = b
		bootstrap = append(bootstrap, b.controller)
		controllers = append(controllers, fmt.Sprintf("%d@%s:%s", b.ID, b.controller, randomID()))
	}
	if opts.Proxy {
		var err error
		if c.Proxy, err = newProxy(c.Brokers[0].behind); err != nil {
			return err
		}
	}
	for _, b := range c.Brokers {
		settings := b.settings(len(c.Brokers), strings.Join(bootstrap, ","), c.Proxy)
		maps.Copy(settings, opts.Settings)
		if err := b.writeSettings(settings); err != nil {
			return err
		}
	}
	how := []string{"--standalone"}
	if len(c.Brokers) > 1 {
		how = []string{"--initial-controllers", strings.Join(controllers, ",")}
	}
	return c.each(func(b *Broker) error {
		args := append([]string{"format", "-t", clusterID, "-c", b.propertiesFile()}, how...)
		if out, err := c.Java(context.Background(), "kafka.tools.StorageTool", args...).CombinedOutput(); err != nil {
			return fmt.Errorf("format the storage of broker %d: %w: %s", b.ID, err, out)
		}
		return nil
	})
}

// each does something to all brokers at once.
func (c *Cluster) each(do func(*Broker) error) error {
	var group errgroup.Group
	for _, b := range c.Brokers {
		group.Go(func() error { return do(b) })
	}
	return group.Wait()
}

// Seeds are the addresses that a client begins with.
func (c *Cluster) Seeds() (seeds []string) {
	if c.Proxy != nil {
		return []string{c.Proxy.Addr}
	}
	return c.DirectSeeds()
}

// DirectSeeds are those that lead past the proxy.
func (c *Cluster) DirectSeeds() (seeds []string) {
	for _, b := range c.Brokers {
		seeds = append(seeds, b.Addr)
	}
	return seeds
}

// Java prepares a program that comes with Kafka, by its class, like org.apache.kafka.tools.consumer.ConsoleConsumer.
func (c *Cluster) Java(ctx context.Context, class string, args ...string) *exec.Cmd {
	all := append([]string{"-Xmx128m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-cp", filepath.Join(c.lib, "*"), class}, args...)
	cmd := exec.CommandContext(ctx, "java", all...)
	cmd.Dir = c.dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return cmd
}

// Stop ends all brokers and removes the folder. A second Stop does nothing.
func (c *Cluster) Stop() error {
	err := c.each((*Broker).Kill) // nobody needs what they would still write
	if c.Proxy != nil {
		c.Proxy.close()
	}
	return errors.Join(err, c.guard.finish())
}

// Log returns the end of what all brokers have logged.
func (c *Cluster) Log() string {
	var all strings.Builder
	for _, b := range c.Brokers {
		fmt.Fprintf(&all, "broker %d:\n%s\n", b.ID, serverlog.Tail(b.LogFile(), 0))
	}
	return all.String()
}

// randomID makes an id as Kafka writes them: 16 bytes in URL-safe base64.
func randomID() string {
	var id [16]byte
	_, _ = rand.Read(id[:])
	id[0] &= 0x7f // a leading - would look like an option
	return base64.RawURLEncoding.EncodeToString(id[:])
}

func freeAddr() (string, error) {
	l, err := new(net.ListenConfig).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("find a free port on 127.0.0.1: %w", err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().String(), nil
}
