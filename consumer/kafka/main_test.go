package kafka

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/pillarbox-dev/pillarbox/outbox"
	"github.com/pillarbox-dev/pillarbox/outbox/inbox"
)

// argsEnv makes the test binary run a consumer, as its JSON says, instead of the tests.
const argsEnv = "CONSUMERTEST_PROCESS"

// processArgs say what a consumer of its own process does.
type processArgs struct {
	Brokers      []string
	Topic, Group string
	Database     string
	Batch        int
	// KillAfter is after how many results, each told between the commit of its transaction and that of its offset, it kills itself.
	KillAfter int
}

func TestMain(m *testing.M) {
	text, ok := os.LookupEnv(argsEnv)
	if !ok {
		os.Exit(m.Run())
	}
	var args processArgs
	err := json.Unmarshal([]byte(text), &args)
	if err == nil {
		err = runProcess(args)
	}
	fmt.Fprintln(os.Stderr, "the process was to kill itself:", err)
	os.Exit(1)
}

func runProcess(args processArgs) error {
	db, err := sql.Open("pgx", args.Database)
	if err != nil {
		return err
	}
	box, err := inbox.New(outbox.Postgres, inbox.Options{})
	if err != nil {
		return err
	}
	told := make(chan struct{}, args.KillAfter)
	consumer, err := New(Config[*sql.Tx]{
		Brokers: args.Brokers, Topics: []string{args.Topic}, Group: args.Group, Inbox: box, Begin: outbox.BeginSQL(db, nil),
		Handle: handle, Batch: args.Batch, SessionTimeout: 6 * time.Second, CommitInterval: time.Minute,
		Log: slog.New(slog.NewTextHandler(os.Stderr, nil)),
		Observe: func(Result) {
			if told <- struct{}{}; len(told) == args.KillAfter {
				_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
				select {}
			}
		},
	})
	if err != nil {
		return err
	}
	return consumer.Run(context.Background())
}

// runUntilKilled runs a consumer in a process of its own until it has killed itself.
func (w *world) runUntilKilled(batch, after int) {
	w.t.Helper()
	text, err := json.Marshal(processArgs{Brokers: w.cluster.DirectSeeds(), Topic: w.topic, Group: w.group, Database: w.url, Batch: batch,
		KillAfter: after})
	must(w.t, err)
	ctx, cancel := context.WithTimeout(w.t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, os.Args[0])
	cmd.Env = append(os.Environ(), argsEnv+"="+string(text))
	out, err := cmd.CombinedOutput()
	status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus)
	if !ok || status.Signal() != syscall.SIGKILL || ctx.Err() != nil {
		w.t.Fatalf("the consumer ended with %v, want it killed by itself\n%s", err, out)
	}
}
