package consumertest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/pillarbox-dev/pillarbox/destination/http"
	"github.com/pillarbox-dev/pillarbox/destination/kafka"
	"github.com/pillarbox-dev/pillarbox/relay"
	"github.com/pillarbox-dev/pillarbox/store/postgres"
)

// argsEnv makes the test binary run a relay, as its JSON says, instead of the tests.
const argsEnv = "CONSUMERTEST_RELAY"

// relayArgs say what a relay does. It sends to URL, or else to the topic.
type relayArgs struct {
	Owner, Database string
	URL, Secret     string
	Brokers         []string
	Topic           string
}

// lease is not lost on a busy machine; after a kill it is ended by hand. A call of Deliver may take half of it.
const lease = time.Minute

func TestMain(m *testing.M) {
	text, ok := os.LookupEnv(argsEnv)
	if !ok {
		os.Exit(m.Run())
	}
	var args relayArgs
	err := json.Unmarshal([]byte(text), &args)
	if err == nil {
		err = runRelay(args)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// runRelay carries events until it is killed, or told to stop.
func runRelay(args relayArgs) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	store, err := postgres.Open(ctx, postgres.Config{URL: args.Database})
	if err != nil {
		return err
	}
	defer store.Close()
	destination, err := args.destination()
	if err != nil {
		return err
	}
	r, err := relay.New(relay.Config{
		Store: store, Owner: args.Owner, Lease: lease, Logger: slog.New(slog.NewTextHandler(os.Stderr, nil)),
		Destinations: []relay.DestinationConfig{{
			Name: "consumer", Destination: destination, Timeout: lease / 2,
			Retry:   relay.RetryPolicy{Base: 50 * time.Millisecond, Max: time.Second, MaxAttempts: 1000},
			Breaker: relay.BreakerConfig{Probe: 50 * time.Millisecond, MaxProbe: 200 * time.Millisecond},
		}},
	})
	if err != nil {
		return err
	}
	return r.Run(ctx)
}

func (a *relayArgs) destination() (relay.Destination, error) {
	if a.URL == "" {
		d, err := kafka.New(kafka.Config{Brokers: a.Brokers, Topic: a.Topic, MaxBatch: 200})
		return batchRepeater{&repeater{Destination: d}, 200}, err
	}
	d, err := http.New(http.Config{
		Endpoint: http.Endpoint{URL: a.URL, Secret: a.Secret}, Signing: http.Signing{Standard: true}, AllowPrivate: true, MaxInFlight: 16,
	})
	return &repeater{Destination: d}, err
}

// repeater makes one delivery in ten of those that are published again, later and in between others.
type repeater struct {
	relay.Destination
	mu        sync.Mutex
	published []relay.Delivery // some of the last
}

type batchRepeater struct {
	*repeater
	batch int
}

func (b batchRepeater) MaxBatch() int { return b.batch }

func (r *repeater) Deliver(ctx context.Context, batch []relay.Delivery) []relay.Outcome {
	outcomes := r.Destination.Deliver(ctx, batch)
	var again []relay.Delivery
	r.mu.Lock()
	for i, o := range outcomes {
		if o.Kind != relay.Published {
			continue
		}
		r.published = append(r.published, batch[i])
		if rand.IntN(10) == 0 {
			again = append(again, r.published[rand.IntN(len(r.published))])
		}
	}
	if len(r.published) > 4000 {
		r.published = append([]relay.Delivery(nil), r.published[2000:]...)
	}
	r.mu.Unlock()
	if len(again) > 0 {
		r.Destination.Deliver(ctx, again) // whatever becomes of them
	}
	return outcomes
}

// process is a relay at work.
type process struct {
	t    testing.TB
	cmd  *exec.Cmd
	log  bytes.Buffer
	done chan struct{} // closed when it has ended
	err  error
}

// start starts a relay. At the end of the test it is killed, if it still runs.
func start(t testing.TB, args relayArgs) *process {
	t.Helper()
	text, err := json.Marshal(args)
	must(t, err)
	p := &process{t: t, cmd: exec.CommandContext(context.Background(), os.Args[0]), done: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), argsEnv+"="+string(text))
	p.cmd.Stdout, p.cmd.Stderr = &p.log, &p.log
	must(t, p.cmd.Start())
	go func() { p.err = p.cmd.Wait(); close(p.done) }()
	t.Cleanup(func() {
		p.kill()
		if t.Failed() {
			log := p.log.Bytes()
			t.Logf("%s: %v\n%s", args.Owner, p.err, log[max(0, len(log)-4000):])
		}
	})
	return p
}

func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	<-p.done
}

// stop ends it in good order.
func (p *process) stop() {
	p.t.Helper()
	must(p.t, p.cmd.Process.Signal(syscall.SIGTERM))
	select {
	case <-p.done:
		must(p.t, p.err)
	case <-time.After(patience):
		p.t.Errorf("the relay did not stop within %v", patience)
	}
}
