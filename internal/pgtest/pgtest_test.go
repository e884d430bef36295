package pgtest_test

import (
	"bufio"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pillarbox-dev/pillarbox/internal/pgtest"
)

func query[T any](t *testing.T, url, sql string) T {
	t.Helper()
	ctx := t.Context()
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(ctx)
	var v T
	if err := conn.QueryRow(ctx, sql).Scan(&v); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return v
}

func TestDatabasesAreApart(t *testing.T) {
	a, b := pgtest.Database(t), pgtest.Database(t)
	if a == b {
		t.Fatalf("two calls gave the same database %s", a)
	}
	query[int](t, a, "with made as (select 1) select * from made")
	if got := query[string](t, b, "select current_setting('fsync')"); got != "on" {
		t.Errorf("fsync is %s, want on", got)
	}
	if got := query[string](t, a, "select current_setting('server_encoding')"); got != "UTF8" {
		t.Errorf("encoding is %s, want UTF8", got)
	}
}

func TestDatabaseIsDroppedWithItsTest(t *testing.T) {
	var url string
	t.Run("inner", func(t *testing.T) {
		url = pgtest.Database(t)
		conn, err := pgx.Connect(t.Context(), url)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close(context.Background()) })
	})
	if _, err := pgx.Connect(t.Context(), url); err == nil || !strings.Contains(err.Error(), "does not exist") {
		t.Errorf("connecting after the test: got %v, want an error that says it does not exist", err)
	}
}

func TestRestartKeepsPortSettingsAndData(t *testing.T) {
	server := pgtest.New(t, pgtest.Options{Settings: map[string]string{"wal_level": "logical", "application_name": "it's"}})
	url := server.Database(t)
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Exec(t.Context(), "create table kept as select 42 as n"); err != nil {
		t.Fatal(err)
	}
	for _, mode := range []pgtest.Mode{pgtest.Fast, pgtest.Immediate} {
		before := server.PID()
		if err := server.Restart(mode); err != nil {
			t.Fatalf("restart %s: %v", mode, err)
		}
		if server.PID() == before {
			t.Errorf("restart %s: still process %d", mode, before)
		}
		if err := conn.Ping(t.Context()); err == nil {
			t.Errorf("restart %s: an old connection lives on", mode)
		}
		if got := query[int](t, url, "select n from kept"); got != 42 {
			t.Errorf("restart %s: read %d, want 42", mode, got)
		}
	}
	if got := query[string](t, url, "select current_setting('wal_level')"); got != "logical" {
		t.Errorf("wal_level is %s, want logical", got)
	}
	if uid := processUID(t, server.PID()); uid == 0 {
		t.Error("the server runs as root")
	}
}

func TestDownMakesItUnreachable(t *testing.T) {
	server := pgtest.New(t, pgtest.Options{})
	url := server.Database(t)
	if err := server.Down(pgtest.Immediate); err != nil {
		t.Fatal(err)
	}
	if _, err := pgx.Connect(t.Context(), url); err == nil {
		t.Error("a server that is down takes connections")
	}
	if server.PID() != 0 {
		t.Errorf("PID is %d while the server is down", server.PID())
	}
	if err := server.Up(); err != nil {
		t.Fatal(err)
	}
	query[int](t, url, "select 1")
}

func TestStopRemovesEverything(t *testing.T) {
	parent := t.TempDir()
	makeReachable(t, parent)
	server, err := pgtest.Start(pgtest.Options{Dir: parent})
	if err != nil {
		t.Fatal(err)
	}
	pid := server.PID()
	for range 2 {
		if err := server.Stop(); err != nil {
			t.Fatal(err)
		}
	}
	if left, _ := os.ReadDir(parent); len(left) != 0 {
		t.Errorf("left in the folder: %v", left)
	}
	if syscall.Kill(pid, 0) == nil {
		t.Errorf("process %d still runs", pid)
	}
}

// TestServerEndsWithAKilledOwner starts this test binary again, which starts a server; then it kills the binary.
func TestServerEndsWithAKilledOwner(t *testing.T) {
	if parent := os.Getenv("PGTEST_OWNER_DIR"); parent != "" {
		server, err := pgtest.Start(pgtest.Options{Dir: parent})
		if err != nil {
			t.Fatal(err)
		}
		os.Stdout.WriteString("PID " + strconv.Itoa(server.PID()) + "\n")
		select {}
	}
	parent := t.TempDir()
	makeReachable(t, parent)
	owner := exec.Command(os.Args[0], "-test.run=^TestServerEndsWithAKilledOwner$")
	owner.Env = append(os.Environ(), "PGTEST_OWNER_DIR="+parent)
	out, err := owner.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := owner.Start(); err != nil {
		t.Fatal(err)
	}
	pid := 0
	for lines := bufio.NewScanner(out); pid == 0 && lines.Scan(); {
		if id, ok := strings.CutPrefix(lines.Text(), "PID "); ok {
			pid, _ = strconv.Atoi(id)
		} else {
			t.Log(lines.Text())
		}
	}
	owner.Process.Kill()
	owner.Wait()
	if pid == 0 {
		t.Fatal("the owner started no server")
	}
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		left, err := os.ReadDir(parent)
		if err != nil {
			t.Fatal(err)
		}
		if len(left) == 0 && syscall.Kill(pid, 0) != nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("after the owner was killed: folder holds %v, kill(%d, 0) says %v", left, pid, syscall.Kill(pid, 0))
		}
	}
}

func TestMissingBinariesFailWithAHint(t *testing.T) {
	for _, bin := range []string{"/nonexistent", t.TempDir()} {
		t.Setenv("PILLARBOX_PG_BIN", bin)
		_, err := pgtest.Start(pgtest.Options{})
		if err == nil {
			t.Fatalf("started from %s", bin)
		}
		for _, want := range []string{bin, "apt-get install postgresql", "PILLARBOX_PG_BIN"} {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("error %q does not say %q", err, want)
			}
		}
	}
}

func TestBadSettingShowsTheLog(t *testing.T) {
	_, err := pgtest.Start(pgtest.Options{Settings: map[string]string{"shared_buffers": "lots"}})
	if err == nil || !strings.Contains(err.Error(), "shared_buffers") {
		t.Errorf("got %v, want an error that shows the server's own words", err)
	}
}

// makeReachable lets the user postgres into a folder that testing made for this user alone.
func makeReachable(t *testing.T, dir string) {
	t.Helper()
	for ; strings.HasPrefix(dir, os.TempDir()) && dir != os.TempDir(); dir = filepath.Dir(dir) {
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
}

func processUID(t *testing.T, pid int) int {
	t.Helper()
	info, err := os.Stat("/proc/" + strconv.Itoa(pid))
	if err != nil {
		t.Fatal(err)
	}
	return int(info.Sys().(*syscall.Stat_t).Uid)
}
