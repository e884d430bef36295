package ops_test

import (
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pillarbox-dev/pillarbox/ops"
	"github.com/pillarbox-dev/pillarbox/outbox/schema"
	"github.com/pillarbox-dev/pillarbox/relay"
	"github.com/pillarbox-dev/pillarbox/store/postgres"
	"github.com/pillarbox-dev/pillarbox/store/sqlite"
)

// jobsEnv makes the test binary work on jobs, until it is killed, instead of running tests: dialect, address and schema, on a line
// each.
const jobsEnv = "OPS_TEST_JOBS"

func TestMain(m *testing.M) {
	if where := os.Getenv(jobsEnv); where != "" {
		if err := workOnJobs(context.Background(), strings.Split(where, "\n")); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func workOnJobs(ctx context.Context, where []string) (err error) {
	var db *sql.DB
	dialect := schema.Postgres
	if where[0] == schema.SQLite.String() {
		dialect = schema.SQLite
		db, err = sqlite.OpenDB(ctx, sqlite.Config{Path: where[1]})
	} else {
		db, err = sql.Open("pgx", where[1])
	}
	if err != nil {
		return err
	}
	defer db.Close()
	o, err := ops.New(db, dialect, where[2])
	if err != nil {
		return err
	}
	o.RunJobs(ctx, slog.Default())
	return nil
}

// jobProcess starts another process that works on the jobs of the box. It is killed by the function that is returned.
func (b *box) jobProcess() (kill func()) {
	b.Helper()
	binary, err := os.Executable()
	b.must(err)
	cmd := exec.CommandContext(context.Background(), binary)
	cmd.Env = append(os.Environ(), jobsEnv+"="+strings.Join([]string{b.dialect.String(), b.address, b.schema}, "\n"))
	cmd.Stderr = os.Stderr
	b.must(cmd.Start())
	kill = sync.OnceFunc(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // the error says that it was killed
	})
	b.Cleanup(kill)
	return kill
}

// carry runs a relay with one destination until the end of the test, or until it is stopped.
func (b *box) carry(d relay.DestinationConfig) (stop func()) {
	b.Helper()
	var store relay.Store
	var err error
	if b.dialect == schema.Postgres {
		s, e := postgres.Open(b.Context(), postgres.Config{URL: b.address, Schema: b.schema})
		b.must(e)
		b.Cleanup(s.Close)
		store = s
	} else {
		s, e := sqlite.Open(b.Context(), sqlite.Config{Path: b.address})
		b.must(e)
		b.Cleanup(func() { _ = s.Close() })
		store = s
	}
	r, err := relay.New(relay.Config{Store: store, Owner: "relay", Destinations: []relay.DestinationConfig{d},
		Logger: slog.New(slog.DiscardHandler)})
	b.must(err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := r.Run(ctx); err != nil {
			b.Errorf("relay: %v", err)
		}
	}()
	stop = sync.OnceFunc(func() { cancel(); <-ended })
	b.Cleanup(stop)
	return stop
}

// ledgered is a destination that takes everything, and remembers for each key what came last.
type ledgered struct {
	mu       sync.Mutex
	last     map[string]int64
	seen     map[int64]bool
	problems []string
}

func newLedgered() *ledgered { return &ledgered{last: map[string]int64{}, seen: map[int64]bool{}} }

func (d *ledgered) MaxBatch() int { return 200 }

func (d *ledgered) Deliver(_ context.Context, batch []relay.Delivery) []relay.Outcome {
	d.mu.Lock()
	defer d.mu.Unlock()
	outcomes := make([]relay.Outcome, len(batch))
	for i, event := range batch {
		outcomes[i] = relay.Outcome{Kind: relay.Published, Receipt: "200"}
		if d.seen[event.Seq] {
			d.problems = append(d.problems, fmt.Sprintf("%d came twice", event.Seq))
		}
		if event.Key != "" && event.Seq <= d.last[event.Key] {
			d.problems = append(d.problems, fmt.Sprintf("%s: %d came after %d", event.Key, event.Seq, d.last[event.Key]))
		}
		d.seen[event.Seq], d.last[event.Key] = true, event.Seq
	}
	return outcomes
}

func (d *ledgered) count() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.seen)
}

// await polls until something holds.
func (b *box) await(what string, holds func() bool) {
	b.Helper()
	for end := time.Now().Add(time.Minute); !holds(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			b.Fatalf("it took more than a minute until %s", what)
		}
	}
}

// A mass of quarantined deliveries is retried by a real relay, in order per key and each once, although the process that works on
// the job is killed in the midst, another one takes its place, and an operator pauses and resumes the job.
func TestJobOverAKilledProcess(t *testing.T) {
	onBoth(t, func(b *box) {
		n, rate := 20_000, 5_000
		if b.dialect == schema.SQLite { // with one writer at a time, and the race detector
			n, rate = 4_000, 1_000
		}
		b.events(n, "orders", time.Hour)
		b.exec("update outbox_event set partition_key = 'key-' || (seq * 7919 % 200) where seq % 10 <> 0")
		b.cursor("d", int64(n))
		b.deliveries(n, "QUARANTINED", 1)
		b.exec("update outbox_delivery set attempt_count = 8, last_error_code = 'HTTP_422', endpoint = ''")
		d := newLedgered()
		stopRelay := b.carry(relay.DestinationConfig{Name: "d", Destination: d})
		j := b.startJob(ops.JobRequest{Kind: ops.JobRetry, RatePerSecond: rate})
		reaches := func(affected int64) func() bool {
			return func() (done bool) {
				now, err := b.Job(b.Context(), j.ID)
				b.must(err)
				j = now
				return j.Affected >= affected
			}
		}
		kill := b.jobProcess()
		b.await("the job gets going", reaches(int64(n/5)))
		kill()
		other, third := b.jobProcess(), b.jobProcess() // two that share the work
		b.await("another process goes on with the job", reaches(int64(n/2)))
		j, err := b.PauseJob(b.Context(), j.ID, j.Version, ops.Action{By: "bob"})
		b.must(err)
		at := j.Affected
		b.await("what was set going is delivered", func() bool { return d.count() >= int(at) })
		if j, err = b.Job(b.Context(), j.ID); err != nil || j.Affected != at || d.count() != int(at) || at >= int64(n) {
			t.Errorf("paused at %d: the job = %+v, %v, and %d are delivered", at, j, err, d.count())
		}
		_, err = b.ResumeJob(b.Context(), j.ID, j.Version, ops.Action{By: "bob"})
		b.must(err)
		b.await("everything is delivered", func() bool { return d.count() == n })
		b.await("the job is done", func() bool { return reaches(int64(n))() && j.State == ops.JobDone })
		other()
		third()
		stopRelay()
		for i, problem := range d.problems {
			if i < 10 {
				t.Error(problem)
			}
		}
		if j.Affected != int64(n) || j.Skipped != 0 || j.Position != int64(n) {
			t.Errorf("job = %+v, want all of %d and none skipped", j, n)
		}
		recorded := b.seqs("select count(*) || ' ' || count(distinct seq) from outbox_operator_action where action = 'retry'")
		published := b.seqs("select count(*) from outbox_delivery where status = 'PUBLISHED'")
		if want := fmt.Sprintf("%d %d", n, n); recorded != want || published != fmt.Sprint(n) {
			t.Errorf("recorded = %s, published = %s, want each once", recorded, published)
		}
	})
}

// routed is a destination with endpoints, which are all the same one.
type routed struct{ *ledgered }

func (routed) Endpoint(*relay.Event) string { return "A" }
func (routed) Several() bool                { return true }

// A replay brings what was published, which has lost its endpoint, and what was quarantined or discarded, which has not, in the
// order of the log. A quarantined delivery that holds its lane stays before those that wait behind it.
func TestReplayToAnEndpointIsInOrder(t *testing.T) {
	const n, held = 60, 10
	onBoth(t, func(b *box) {
		b.events(n+held, "orders", time.Hour)
		b.exec("update outbox_event set partition_key = case when seq <= $1 then 'key' else 'held' end", n)
		b.cursor("d", n+held)
		b.deliveries(n, "PUBLISHED", 1)
		b.exec("update outbox_delivery set status = 'QUARANTINED', published_at = null, endpoint = 'A' where seq % 3 = 0")
		b.exec("update outbox_delivery set status = 'DISCARDED', published_at = null, endpoint = 'A' where seq % 7 = 0")
		b.deliveries(1, "QUARANTINED", n+1)
		b.deliveries(held-1, "PENDING", n+2)
		b.exec("update outbox_delivery set endpoint = 'A', partition_key = 'held' where seq > $1", n)
		b.finish(b.startJob(ops.JobRequest{Kind: ops.JobReplay}).ID)
		d := newLedgered()
		stop := b.carry(relay.DestinationConfig{Name: "d", Destination: routed{d}})
		b.await("everything is delivered", func() bool { return d.count() == n+held })
		stop()
		for _, problem := range d.problems {
			b.Error(problem)
		}
	})
}
