package main

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"
)

// The demo keeps every promise on both databases, with the relay inside and beside, and prints one object with these keys.
func TestDemo(t *testing.T) {
	for name, flags := range map[string][]string{"sqlite": {"--relay-beside"}, "postgres": nil} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var out, progress bytes.Buffer
			args := append([]string{"--duration", "6s", "--json", "--database", databases[name](t)}, flags...)
			if err := (&program{stdout: &out, stderr: &progress}).run(t.Context(), args); err != nil {
				t.Fatalf("%v\n%s", err, progress.String())
			}
			var r map[string]float64
			must(t, json.Unmarshal(out.Bytes(), &r))
			keys := []string{"committed", "delivered", "duplicates", "false", "lost", "out_of_order", "quarantined", "relay_kills", "rolled_back",
				"seconds"}
			if got := slices.Sorted(maps.Keys(r)); !slices.Equal(got, keys) {
				t.Errorf("keys = %q, want %q", got, keys)
			}
			if r["lost"] != 0 || r["false"] != 0 || r["out_of_order"] != 0 || r["quarantined"] != 0 || r["delivered"] != r["committed"] {
				t.Errorf("reckoning = %v, want everything delivered", r)
			}
			if r["committed"] < 20 || r["rolled_back"] < 1 || r["relay_kills"] != 2 {
				t.Errorf("reckoning = %v, want that much happened", r)
			}
			for _, chapter := range []string{"the dashboard, for as long as this runs: http://127.0.0.1:", "accepts a new token", "the file follows", "killed with SIGKILL",
				"approvals were revoked while the audit store was down", "is slow"} {
				if !strings.Contains(progress.String(), chapter) {
					t.Errorf("the story lacks %q:\n%s", chapter, progress.String())
				}
			}
		})
	}
}

// What is wrong with a command line is told at once; a database that another audit store has seen is refused.
func TestRefusals(t *testing.T) {
	refused := func(want string, args ...string) {
		t.Helper()
		var out, errOut bytes.Buffer
		err := (&program{stdout: &out, stderr: &errOut}).run(t.Context(), args)
		if err == nil || !strings.Contains(err.Error(), want) || out.Len() > 0 {
			t.Errorf("%q: %v and %q, want %q", args, err, out.String(), want)
		}
	}
	refused("there are arguments that are no flags: more\n--duration is 1ms: it can be 1s to 1h", "--duration", "1ms", "more")
	b := newBench(t, "sqlite", nil)
	service, err := newService(b.db, seams{}, func() {})
	must(t, err)
	b.issued(service)
	refused("give an empty one", "--database", b.settings.Database)
}
