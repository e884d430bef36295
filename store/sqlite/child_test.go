package sqlite_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/pillarbox-dev/pillarbox/relay"
	"github.com/pillarbox-dev/pillarbox/store/sqlite"
)

// childEnv makes the test binary run one of children instead of the tests: another process on the same database.
const childEnv = "SQLITE_TEST_CHILD"

// children are what another process can do. What they print is the parent's to read.
var children = map[string]func(ctx context.Context, args []string) error{
	"hold":    childHold,
	"produce": childProduce,
	"settle":  childSettle,
	"open":    childOpen,
}

func TestMain(m *testing.M) {
	if name := os.Getenv(childEnv); name != "" {
		if err := children[name](context.Background(), os.Args[1:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// child is another process. Its input ends when the test does.
type child struct {
	cmd   *exec.Cmd
	stdin io.Closer
	lines *bufio.Scanner
}

// startChild starts the test binary, or a copy of it, as one of children. It is killed with the test, if need be.
func startChild(t testing.TB, name string, args ...string) *child {
	t.Helper()
	binary, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return startChildAs(t, binary, nil, name, args...)
}

func startChildAs(t testing.TB, binary string, user *syscall.Credential, name string, args ...string) *child {
	t.Helper()
	cmd := exec.CommandContext(context.Background(), binary, args...) // t.Context ends before the cleanup asks what became of it
	cmd.Env = append(os.Environ(), childEnv+"="+name)
	cmd.Dir = "/"
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: user}
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	c := &child{cmd: cmd, stdin: stdin, lines: bufio.NewScanner(stdout)}
	t.Cleanup(func() { c.kill(t) })
	return c
}

// line returns the next line that the child prints.
func (c *child) line(t testing.TB) string {
	t.Helper()
	if !c.lines.Scan() {
		t.Fatalf("the child has ended instead of saying something: %v", c.lines.Err())
	}
	return c.lines.Text()
}

// kill ends the child with SIGKILL, wherever it is, and returns the last line that it printed since the last call of line.
func (c *child) kill(t testing.TB) (last string) {
	t.Helper()
	if c.cmd.ProcessState != nil {
		return ""
	}
	if err := c.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		t.Errorf("kill the child: %v", err)
	}
	for c.lines.Scan() {
		last = c.lines.Text()
	}
	_ = c.cmd.Wait() // the error says that it was killed
	return last
}

// wait waits for the child to end by itself and fails the test when it failed.
func (c *child) wait(t testing.TB) {
	t.Helper()
	for c.lines.Scan() {
		t.Log(c.lines.Text())
	}
	if err := c.cmd.Wait(); err != nil {
		t.Errorf("child: %v", err)
	}
}

// childHold takes the write lock, says so, and keeps it until its input ends.
func childHold(ctx context.Context, args []string) error {
	db, err := sqlite.OpenDB(ctx, sqlite.Config{Path: args[0]})
	if err != nil {
		return err
	}
	defer db.Close()
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	fmt.Println("held")
	_, err = io.Copy(io.Discard, os.Stdin)
	return errors.Join(err, tx.Rollback())
}

// childProduce runs transactions of a service: each writes business rows and events, and some roll back, as a whole or to a
// savepoint. args: path, name of the process, how many.
func childProduce(ctx context.Context, args []string) error {
	db, err := sqlite.OpenDB(ctx, sqlite.Config{Path: args[0]})
	if err != nil {
		return err
	}
	defer db.Close()
	n, err := strconv.Atoi(args[2])
	if err != nil {
		return err
	}
	for i := range n {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		put := func(id string) {
			_, insertErr := tx.ExecContext(ctx, `insert into business (id) values (?1)`, id)
			_, eventErr := tx.ExecContext(ctx, `
insert into outbox_event (event_id, topic_name, partition_key, event_type) values (?1, 'orders', ?2, 'OrderPlaced')`, id, args[1])
			err = errors.Join(err, insertErr, eventErr)
		}
		exec := func(query string) {
			_, execErr := tx.ExecContext(ctx, query)
			err = errors.Join(err, execErr)
		}
		for j := range 1 + rand.IntN(3) {
			put(fmt.Sprintf("%s-%d-%d", args[1], i, j))
		}
		if rand.IntN(3) == 0 {
			exec("savepoint s")
			put(fmt.Sprintf("%s-%d-never", args[1], i))
			exec("rollback to s")
			put(fmt.Sprintf("%s-%d-after", args[1], i))
			exec("release s")
		}
		switch {
		case err != nil:
			return err
		case rand.IntN(4) == 0:
			err = tx.Rollback()
		default:
			err = tx.Commit()
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// longReceipt makes rows so big that a few of them fill the page cache.
var longReceipt = strings.Repeat("0123456789", 40)

// childSettle settles for ever, many rows at a time, and says before each how far it will have come. args: path, rows.
func childSettle(ctx context.Context, args []string) error {
	s, err := sqlite.Open(ctx, sqlite.Config{Path: args[0]})
	if err != nil {
		return err
	}
	rows, err := strconv.ParseInt(args[1], 10, 64)
	if err != nil {
		return err
	}
	var lease relay.Lease
	for ok := false; !ok; time.Sleep(time.Millisecond) { // the one that was killed has it for a little while
		r := relay.AcquireRequest{Destination: "dest", Owner: "child", TTL: 50 * time.Millisecond}
		if lease, ok, err = s.Acquire(ctx, r); err != nil {
			return err
		}
	}
	for position := lease.Position; ; {
		settlement := relay.Settlement{}
		for range rows {
			position++
			settlement.Published = append(settlement.Published, relay.Receipt{Seq: position, Receipt: longReceipt})
		}
		settlement.Position = position
		fmt.Println(position)
		if _, err := s.Settle(ctx, lease.LeaseID, settlement); err != nil {
			return err
		}
	}
}

// childOpen opens a store and prints what came of it. args: path.
func childOpen(ctx context.Context, args []string) error {
	s, err := sqlite.Open(ctx, sqlite.Config{Path: args[0], BusyTimeout: 100 * time.Millisecond})
	if err != nil {
		fmt.Println(err)
		return nil
	}
	fmt.Println("opened")
	return s.Close()
}
