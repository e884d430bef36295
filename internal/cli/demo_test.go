package cli

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// The demo keeps every promise, with the relay killed twice, and prints one object with these keys.
func TestDemo(t *testing.T) {
	p := start(t, "demo", "--duration", "5s", "--json")
	if code := p.wait(2 * time.Minute); code != 0 {
		t.Errorf("exit status %d, want 0", code)
	}
	r := reckoning(t, p)
	keys := []string{"committed", "delivered", "duplicates", "false", "lost", "out_of_order", "quarantined", "relay_kills", "rolled_back", "seconds"}
	if got := slices.Sorted(maps.Keys(r)); !slices.Equal(got, keys) {
		t.Errorf("keys = %q, want %q", got, keys)
	}
	if r["lost"] != 0 || r["false"] != 0 || r["out_of_order"] != 0 {
		t.Errorf("reckoning = %v, want no promise broken", r)
	}
	if r["committed"] < 100 || r["rolled_back"] < 20 || r["duplicates"] < 1 || r["relay_kills"] != 2 || r["seconds"] < 5 {
		t.Errorf("reckoning = %v, want that much happened", r)
	}
	if r["delivered"]+r["quarantined"] != r["committed"] {
		t.Errorf("reckoning = %v, want all delivered or quarantined", r)
	}
	if log := p.logged(); !strings.Contains(log, "draining") || strings.Contains(log, "\x1b") {
		t.Errorf("the live view is not in plain lines:\n%s", log)
	}
}

// A receiver that breaks its word is found out, whatever it breaks.
func TestDemoFindsALie(t *testing.T) {
	for lie, key := range map[string]string{"lost": "lost", "false": "false", "out-of-order": "out_of_order"} {
		p := start(t, "demo", "--duration", "2s", "--json", "--lie", lie)
		if code := p.wait(2 * time.Minute); code != exitFailed {
			t.Errorf("%s: exit status %d, want 1", lie, code)
		}
		if r := reckoning(t, p); r[key] < 1 {
			t.Errorf("%s: reckoning = %v, want it found", lie, r)
		}
		if !strings.Contains(p.logged(), "a promise was broken: ") {
			t.Errorf("%s: it is not said:\n%s", lie, p.logged())
		}
	}
}

// Ctrl-C ends the demo early, with the reckoning.
func TestDemoEndsEarly(t *testing.T) {
	p := start(t, "demo", "--duration", "10m")
	within(t, time.Minute, "the live view", func() bool { return p.logged() != "" })
	time.Sleep(time.Second) // something happens
	if err := p.cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	if code := p.wait(2 * time.Minute); code != 0 {
		t.Errorf("exit status %d, want 0", code)
	}
	for _, want := range []string{"committed", "relay kills", "Every promise was kept."} {
		if !strings.Contains(p.out.String(), want) {
			t.Errorf("the reckoning lacks %q:\n%s", want, p.out.String())
		}
	}
}

func reckoning(t *testing.T, p *program) map[string]float64 {
	t.Helper()
	var r map[string]float64
	if err := json.Unmarshal(p.out.Bytes(), &r); err != nil {
		t.Fatalf("standard output is no JSON object of numbers: %v\n%s", err, p.out.String())
	}
	return r
}
