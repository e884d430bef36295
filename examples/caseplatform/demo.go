package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pillarbox-dev/pillarbox/consumer/kafka"
	"github.com/pillarbox-dev/pillarbox/internal/child"
	"github.com/pillarbox-dev/pillarbox/internal/reckon"
)

// demo lets the whole story happen: the service is a process of its own, which is killed now and then; clients and the workflow
// engine are here.
type demo struct {
	settings
	listen   string
	duration time.Duration // 0: until the context ends
	progress io.Writer

	started time.Time
	dir     string
	servers *servers
	service *child.Process
	client  *client
	cases   *pgxpool.Pool // for the ledger
	engine  *pgxpool.Pool // of the workflow engine
	flow    *kafka.Consumer[pgx.Tx]
}

const (
	failEvery    = 15 // transactions
	startTimeout = time.Minute
	drainTimeout = time.Minute
	mishapEvery  = 10 * time.Second // without a duration to divide
)

// demonstrate runs a demo to its end and reckons.
func demonstrate(ctx context.Context, d *demo) (r reckon.Reckoning, err error) {
	d.started = time.Now()
	if d.dir, err = os.MkdirTemp("", "caseplatform-"); err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(d.dir)) }()
	defer func() { err = errors.Join(err, d.close()) }()
	lasting := context.WithoutCancel(ctx) // what has begun is brought to its end: the drain comes afterwards
	if err := d.open(lasting); err != nil {
		return r, err
	}
	consuming, stop := context.WithCancel(lasting)
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- d.flow.Run(consuming) }()
	err = d.course(ctx)
	stop()
	if err = errors.Join(err, <-ended); err != nil && !errors.Is(err, errPending) {
		return r, err
	}
	r, failed := d.reckon(lasting)
	_, _, faults := d.client.record()
	return r, errors.Join(err, failed, faults, d.service.Stop())
}

// open starts everything but the clients.
func (d *demo) open(ctx context.Context) (err error) {
	d.say("starting PostgreSQL and Kafka, unless they are given; the first time Kafka is downloaded")
	if d.servers, err = startServers(ctx, &d.settings); err != nil {
		return err
	}
	if err = createTopics(ctx, d.brokers); err != nil {
		return err
	}
	d.service = &child.Process{Name: "service", Command: d.serviceCommand, Log: filepath.Join(d.dir, "service.log")}
	if err = d.service.Start(); err != nil {
		return err
	}
	if err = d.serves(); err != nil {
		return err
	}
	if d.cases, err = openPool(ctx, d.database); err != nil {
		return err
	}
	if d.engine, err = openPool(ctx, d.workflow); err != nil {
		return err
	}
	d.client = &client{url: "http://" + d.listen, name: "CASE-" + rand.Text()[:6], rest: 10 * time.Millisecond}
	d.flow, err = newWorkflow(ctx, d.engine, d.brokers, slog.New(slog.NewTextHandler(io.Discard, nil)))
	return err
}

// serves waits until the service does, or has ended because it cannot.
func (d *demo) serves() error {
	for deadline := time.Now().Add(startTimeout); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		if err := d.service.Died(); err != nil {
			return err
		}
		log, err := os.ReadFile(d.service.Log)
		if err != nil {
			return err
		}
		if bytes.Contains(log, []byte(servesMessage)) {
			return nil
		}
	}
	return fmt.Errorf("the service did not start within %v", startTimeout)
}

// serviceCommand is this program again. Addresses go by the environment, because they may hold a password.
func (d *demo) serviceCommand() *exec.Cmd {
	program, err := os.Executable()
	if err != nil {
		program = os.Args[0]
	}
	cmd := exec.CommandContext(context.Background(), program, "service", "--child", "--listen", d.listen,
		"--fail-every", fmt.Sprint(failEvery))
	cmd.Env = append(os.Environ(), "DATABASE_URL="+d.database, "KAFKA_BROKERS="+strings.Join(d.brokers, ","))
	return cmd
}

// course is what happens: work with mishaps, then the drain.
func (d *demo) course(ctx context.Context) error {
	d.say("the service and its dashboard are at http://%s", d.listen)
	working, stop := context.WithCancel(ctx)
	if d.duration > 0 {
		working, stop = context.WithTimeout(ctx, d.duration)
	}
	defer stop()
	var watching sync.WaitGroup
	defer watching.Wait()
	watched, enough := context.WithCancel(context.WithoutCancel(ctx))
	defer enough()
	watching.Go(func() { d.watch(watched, stop) })
	mishaps := make(chan error, 1)
	go func() {
		err := d.mishaps(working)
		if err != nil {
			stop()
		}
		mishaps <- err
	}()
	err := d.client.run(working)
	stop()
	if err = errors.Join(err, <-mishaps); err != nil {
		return err
	}
	return d.drain(context.WithoutCancel(ctx))
}

// mishaps come one by one: the service is killed twice, with the relay in it, and then the broker goes away for a while.
func (d *demo) mishaps(ctx context.Context) error {
	rest := mishapEvery
	if d.duration > 0 {
		rest = d.duration / 4
	}
	for _, mishap := range []func(context.Context) error{d.killService, d.killService, d.breakKafka} {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(rest):
		}
		if err := mishap(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (d *demo) killService(context.Context) error {
	d.say("the service is killed with SIGKILL, and the relay with it; it starts again")
	if err := d.service.Kill(); err != nil {
		return err
	}
	return d.service.Start()
}

// breakKafka kills the broker, if it is the demo's own. Cases are accepted all the same.
func (d *demo) breakKafka(ctx context.Context) error {
	if d.servers.kafka == nil {
		return nil
	}
	d.say("the Kafka broker is killed")
	broker := d.servers.kafka.Brokers[0]
	if err := broker.Kill(); err != nil {
		return err
	}
	select {
	case <-ctx.Done():
	case <-time.After(2 * time.Second):
	}
	d.say("the Kafka broker starts again")
	return broker.Up()
}

// errPending says that the drain ended before everything had arrived.
var errPending = errors.New("not everything has arrived in time: the reckoning counts it as pending, or as lost if published")

// drain waits until everything that was committed has arrived at the workflow engine or is quarantined.
func (d *demo) drain(ctx context.Context) error {
	d.say("the clients stop; what is under way arrives")
	for deadline := time.Now().Add(drainTimeout); time.Now().Before(deadline); time.Sleep(200 * time.Millisecond) {
		if err := d.service.Died(); err != nil {
			return err
		}
		r, err := d.reckon(ctx)
		if err != nil {
			return err
		}
		if r.Pending+r.Lost == 0 {
			return nil
		}
	}
	return errPending
}

const (
	readLedger = `select dedup_key, status, coalesce(last_error_code, '') from integration.outbox_status
	                where destination = $1 and starts_with(partition_key, $2)`
	readHistory = `select event_type, case_id, version from workflow.case_history where starts_with(case_id, $1) order by number`
)

// reckon holds the clients' record, the relay's ledger and the workflow engine's history against each other.
func (d *demo) reckon(ctx context.Context) (r reckon.Reckoning, err error) {
	committed, rolledBack, _ := d.client.record()
	ledger, err := d.ledger(ctx)
	if err != nil {
		return r, fmt.Errorf("read the ledger: %w", err)
	}
	history, err := d.history(ctx)
	if err != nil {
		return r, fmt.Errorf("read the history: %w", err)
	}
	r = reckon.Of(committed, history, ledger)
	r.RolledBack, r.RelayKills, r.Duplicates = rolledBack, d.service.Killed(), int(d.flow.Stats().Duplicates)
	r.Seconds = float64(time.Since(d.started).Milliseconds()) / 1000
	return r, nil
}

func (d *demo) ledger(ctx context.Context) (map[string]reckon.Held, error) {
	all := map[string]reckon.Held{}
	rows, _ := d.cases.Query(ctx, readLedger, destinationName, d.client.name) // an error comes out of the rows
	var id string
	var held reckon.Held
	_, err := pgx.ForEachRow(rows, []any{&id, &held.Status, &held.Code}, func() error {
		all[id] = held
		return nil
	})
	return all, err
}

func (d *demo) history(ctx context.Context) (all []reckon.Handled, err error) {
	rows, _ := d.engine.Query(ctx, readHistory, d.client.name)
	var eventType, caseID string
	var version int64
	_, err = pgx.ForEachRow(rows, []any{&eventType, &caseID, &version}, func() error {
		all = append(all, reckon.Handled{ID: businessID(eventType, caseID, version), Key: caseID, Times: 1})
		return nil
	})
	return all, err
}

// watch says now and then how things stand. When the service has ended by itself it stops the clients; the drain tells why.
func (d *demo) watch(ctx context.Context, stop func()) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(2 * time.Second):
		}
		if d.service.Died() != nil {
			stop()
		}
		committed, rolledBack, _ := d.client.record()
		stats := d.flow.Stats()
		d.say("committed %d, rolled back %d, handled by the workflow engine %d, duplicates %d",
			len(committed), rolledBack, stats.Handled, stats.Duplicates)
	}
}

func (d *demo) say(format string, args ...any) {
	_, _ = fmt.Fprintf(d.progress, "%5.1fs %s\n", time.Since(d.started).Seconds(), fmt.Sprintf(format, args...))
}

func (d *demo) close() error {
	var problems []error
	if d.service != nil {
		problems = append(problems, d.service.Stop())
	}
	for _, pool := range []*pgxpool.Pool{d.cases, d.engine} {
		if pool != nil {
			pool.Close()
		}
	}
	if d.servers != nil {
		problems = append(problems, d.servers.stop())
	}
	return errors.Join(problems...)
}
