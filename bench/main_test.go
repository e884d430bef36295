package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/pillarbox-dev/pillarbox/internal/pgtest"
)

// measured runs a benchmark and returns its figures by key.
func measured(t *testing.T, args ...string) map[string]any {
	t.Helper()
	var stdout, stderr bytes.Buffer
	if err := run(t.Context(), append(args, "--json"), &stdout, &stderr); err != nil {
		t.Fatalf("%v\n%s", err, &stderr)
	}
	var got map[string]any
	if err := json.Unmarshal(stdout.Bytes(), &got); err != nil {
		t.Fatalf("%v in %s", err, &stdout)
	}
	return got
}

// wantPositive makes sure that each key holds a number above 0, whatever it is: no test times anything.
func wantPositive(t *testing.T, got map[string]any, keys ...string) {
	t.Helper()
	for _, key := range keys {
		if n, ok := got[key].(float64); !ok || n <= 0 {
			t.Errorf("%s: got %v, want a number above 0", key, got[key])
		}
	}
}

// TestDrain starts a server of its own, as the program does when it is given none.
func TestDrain(t *testing.T) {
	cpu, mem := filepath.Join(t.TempDir(), "cpu"), filepath.Join(t.TempDir(), "mem")
	got := measured(t, "drain", "--events", "1500", "--textbook-events", "700", "--pending", "3000", "--held-transaction",
		"--rounds", "1", "--cpuprofile", cpu, "--memprofile", mem)
	wantPositive(t, got, "pillarbox_per_s", "pillarbox_no_ledger_per_s", "textbook_per_s", "textbook_batched_per_s", "ratio",
		"ratio_batched", "wal_bytes_per_event", "relay_peak_heap_mb", "relay_peak_rss_mb", "pending_per_s", "pending_ratio",
		"pending_peak_rss_mb", "held_per_s", "held_ratio")
	if got["events"] != 1500.0 || got["textbook_events"] != 700.0 {
		t.Errorf("events: got %v and %v, want 1500 and 700", got["events"], got["textbook_events"])
	}
	for _, profile := range []string{cpu, mem} {
		if info, err := os.Stat(profile); err != nil || info.Size() == 0 {
			t.Errorf("profile: %v, %v", info, err)
		}
	}
}

func TestLatency(t *testing.T) {
	got := measured(t, "latency", "--rate", "200", "--seconds", "1", "--warm-up", "0.5", "--producers", "4", "--wake-events", "2",
		"--wake-every", "400ms", "--rounds", "2", "--database", server(t))
	wantPositive(t, got, "p50_ms", "p99_ms", "max_ms", "due_p50_ms", "due_p99_ms", "commit_p50_ms", "wake_p50_ms", "wake_max_ms")
	if samples := got["samples"].(map[string]any)["p50_ms"].([]any); len(samples) != 2 {
		t.Errorf("samples of two rounds: got %v", samples)
	}
}

func TestHTTP(t *testing.T) {
	got := measured(t, "http", "--events", "300", "--concurrency", "8", "--rounds", "1", "--database", server(t))
	wantPositive(t, got, "pillarbox_per_s", "bare_per_s", "ratio")
}

func TestBlackhole(t *testing.T) {
	got := measured(t, "blackhole", "--events", "400", "--timeout", "300ms", "--answer-after", "1ms", "--rounds", "1", "--database", server(t))
	wantPositive(t, got, "healthy_per_s", "blackhole_per_s")
	if _, ok := got["loss_percent"].(float64); !ok {
		t.Errorf("loss_percent: got %v, want a number", got["loss_percent"])
	}
}

func TestEnqueue(t *testing.T) {
	got := measured(t, "enqueue", "--transactions", "50", "--rounds", "1", "--database", server(t))
	wantPositive(t, got, "enqueue_us", "insert_us", "ratio", "sql_enqueue_us", "sql_insert_us", "sql_ratio")
}

// server is one that the tests share, and checks that a benchmark leaves no database behind.
func server(t *testing.T) string {
	t.Helper()
	url := pgtest.Shared(t).URL("postgres")
	t.Cleanup(func() {
		conn, err := pgx.Connect(context.Background(), url)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close(context.Background())
		var left int
		const count = "select count(*) from pg_database where datname like 'pillarbox_bench_%'"
		if err := conn.QueryRow(context.Background(), count).Scan(&left); err != nil || left != 0 {
			t.Errorf("%d databases were left behind (%v)", left, err)
		}
	})
	return url
}

func TestWrongCalls(t *testing.T) {
	for _, test := range []struct {
		name string
		args []string
		want string
	}{
		{"no command", nil, "which benchmark"},
		{"unknown command", []string{"fly"}, `no benchmark "fly"`},
		{"unknown flag", []string{"drain", "--fast"}, "-fast"},
		{"argument", []string{"drain", "1000"}, "flags only"},
		{"no round", []string{"drain", "--rounds", "0"}, "--rounds 0"},
		{"no server", []string{"drain", "--database", "postgres://127.0.0.1:1/x?connect_timeout=1"}, "--database"},
		{"no URL", []string{"drain", "--database", "host=127.0.0.1 port=1 connect_timeout=1"}, "--database"},
	} {
		var stdout, stderr bytes.Buffer
		err := run(t.Context(), test.args, &stdout, &stderr)
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: got %v, want an error with %q", test.name, err, test.want)
		}
		if stdout.Len() > 0 {
			t.Errorf("%s: stdout got %s", test.name, &stdout)
		}
	}
}

func TestWrongNumbers(t *testing.T) {
	for _, args := range [][]string{
		{"drain", "--events", "1"},
		{"drain", "--events", "100", "--pending", "50"},
		{"latency", "--rate", "0"},
		{"latency", "--producers", "65"},
		{"http", "--concurrency", "0"},
		{"blackhole", "--endpoints", "1"},
		{"enqueue", "--transactions", "0"},
	} {
		var stdout, stderr bytes.Buffer
		err := run(t.Context(), append(args, "--database", pgtest.Shared(t).URL("postgres")), &stdout, &stderr)
		if err == nil || !strings.Contains(err.Error(), args[1]) {
			t.Errorf("%v: got %v, want an error that names %s", args, err, args[1])
		}
	}
}

func TestHelp(t *testing.T) {
	var stdout, stderr bytes.Buffer
	err := run(t.Context(), []string{"drain", "--help"}, &stdout, &stderr)
	if !errors.Is(err, flag.ErrHelp) {
		t.Errorf("got %v, want %v", err, flag.ErrHelp)
	}
	for _, want := range []string{"-events", "-database", "-rounds"} {
		if !strings.Contains(stderr.String(), want) {
			t.Errorf("the help does not name %s:\n%s", want, &stderr)
		}
	}
}

// TestOperations wants the dashboard and the API beside a small log; what they show is tested where they are.
func TestOperations(t *testing.T) {
	got := measured(t, "operations", "--pending", "3000", "--ledger", "2000", "--quarantined", "20", "--failed", "10", "--pages", "20",
		"--rounds", "1", "--database", server(t))
	wantPositive(t, got, "status_ms", "page_p50_ms", "page_max_ms", "api_p50_ms", "api_max_ms")
}
