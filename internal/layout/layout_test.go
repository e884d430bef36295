// Package layout holds the repository to the shape that DESIGN.md gives it: which package may import which.
package layout

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/pillarbox-dev/pillarbox/"

// rule says what the packages of a folder may import of ours, besides those below the folder's own first two names. A name
// stands for the folder and all below it.
type rule struct {
	folder string
	may    []string
	// plain: nothing but the standard library and what is named here.
	plain bool
}

// rules: imports point one way, cmd → {dashboard, ops, destination/*, store/*} → relay → outbox. Where two fit, the longer
// counts.
var rules = []rule{
	{"outbox", nil, true},
	{"relay", []string{"outbox"}, true},
	{"relay/relaytest", []string{"relay", "outbox"}, true},
	{"envelope", []string{"relay", "outbox"}, false},
	{"contract", []string{"relay", "outbox"}, false},
	{"store", []string{"relay", "outbox"}, false},
	{"destination", []string{"relay", "outbox", "envelope"}, false},
	{"consumer", []string{"outbox"}, false},
	{"tracing", []string{"relay", "outbox"}, false},
	{"ops", []string{"relay", "outbox", "envelope", "contract"}, false},
	{"dashboard", []string{"ops", "relay", "outbox"}, false},
	{"dashboard/api", []string{"dashboard/access", "dashboard/mask", "ops", "relay", "outbox"}, false},
	// Within cmd: config knows the destinations' settings, wire alone knows everything.
	{"internal/config", []string{"dashboard/access", "destination", "envelope", "contract", "ops", "relay", "outbox"}, false},
	{"internal/telemetry", []string{"ops", "tracing", "relay"}, false},
	{"internal/demo", []string{"internal/child", "internal/reckon", "store", "destination/http", "relay", "outbox"}, false},
	{"internal/wire", []string{"internal/config", "internal/telemetry", "dashboard", "ops", "destination", "store", "envelope",
		"contract", "relay", "outbox"}, false},
	{"internal/cli", []string{"internal/config", "internal/wire", "internal/demo", "internal/child", "dashboard", "ops",
		"envelope", "contract", "relay", "outbox"}, false},
	{"cmd", []string{"internal/cli"}, false},
	// Beside the arrow: nothing imports these but tests, benchmarks and examples.
	{"internal", []string{"internal/serverlog"}, false},
	{"bench", []string{"internal/pgtest", "internal/kafkatest", "internal/config", "internal/wire", "dashboard", "ops",
		"destination", "store", "envelope", "contract", "relay", "outbox"}, false},
	{"examples", []string{"internal/child", "internal/reckon", "internal/pgtest", "internal/kafkatest", "dashboard", "ops",
		"consumer", "destination", "store", "envelope", "contract", "relay", "outbox"}, false},
}

func TestImports(t *testing.T) {
	imports := goList(t, "{{.ImportPath}} {{join .Imports \" \"}}")
	if len(imports) < 5 || imports[module+"relay"] == nil || imports[module+"outbox"] == nil {
		t.Fatalf("go list found only %v", imports)
	}
	for _, problem := range breaches(imports) {
		t.Error(problem)
	}
}

// TestBreachesAreFound plants what must not be.
func TestBreachesAreFound(t *testing.T) {
	for _, c := range []struct {
		from, to string
		breach   bool
	}{
		{"relay", module + "outbox", false},
		{"relay", "context", false},
		{"relay", module + "store/postgres", true},
		{"relay", module + "relay/relaytest", true},
		{"relay/relaytest", module + "relay", false},
		{"relay", "golang.org/x/sync/errgroup", true},
		{"outbox", module + "outbox/schema", false},
		{"outbox/inbox", module + "outbox", false},
		{"outbox", module + "relay", true},
		{"outbox/webhook", "github.com/google/uuid", true},
		{"store/postgres", module + "relay", false},
		{"store/postgres", module + "store/postgres/inner", false},
		{"store/postgres", "github.com/jackc/pgx/v5", false},
		{"store/postgres", module + "store/sqlite", true},
		{"store/postgres", module + "destination/http", true},
		{"destination/http", module + "destination/kafka", true},
		{"destination/kafka", module + "store/postgres", true},
		{"consumer/kafka", module + "outbox/inbox", false},
		{"consumer/kafka", module + "relay", true},
		{"ops", module + "store/postgres", true},
		{"dashboard", module + "ops", false},
		{"internal/wire", module + "store/postgres", false},
		{"internal/cli", module + "store/postgres", true},
		{"internal/config", module + "store/postgres", true},
		{"cmd/pillarbox", module + "internal/cli", false},
		{"cmd/pillarbox", module + "internal/wire", true},
		{"relay", module + "relayed", true},
		{"helpers", "fmt", true}, // a folder that the table does not know
	} {
		got := breaches(map[string][]string{module + c.from: {c.to}})
		if (len(got) > 0) != c.breach {
			t.Errorf("%s imports %s: got %q, want a breach: %v", c.from, c.to, got, c.breach)
		}
	}
}

// breaches returns what is against the rules, in order.
func breaches(imports map[string][]string) []string {
	var all []string
	for path, imported := range imports {
		folder := strings.TrimPrefix(path, module)
		r := ruleFor(folder)
		if r == nil {
			all = append(all, fmt.Sprintf("%s is in no folder of the table in layout_test.go: give it a rule, or another place", folder))
			continue
		}
		for _, to := range imported {
			if reason := r.refuses(folder, to); reason != "" {
				all = append(all, fmt.Sprintf("%s imports %s: %s", folder, to, reason))
			}
		}
	}
	slices.Sort(all)
	return all
}

func ruleFor(folder string) *rule {
	var best *rule
	for i := range rules {
		if below(folder, rules[i].folder) && (best == nil || len(rules[i].folder) > len(best.folder)) {
			best = &rules[i]
		}
	}
	return best
}

func (r *rule) refuses(folder, to string) string {
	ours, isOurs := strings.CutPrefix(to, module)
	if !isOurs {
		first, _, _ := strings.Cut(to, "/")
		if r.plain && strings.Contains(first, ".") {
			return "it is to have no dependency outside the standard library"
		}
		return ""
	}
	if below(ours, "relay/relaytest") && !below(folder, "relay/relaytest") {
		return "it is for tests"
	}
	own := strings.Join(strings.SplitN(folder, "/", 3)[:min(2, strings.Count(folder, "/")+1)], "/")
	if r.folder == "outbox" { // one module, its packages use each other
		own = "outbox"
	}
	if below(ours, own) || slices.ContainsFunc(r.may, func(may string) bool { return below(ours, may) }) {
		return ""
	}
	return fmt.Sprintf("%s may import only %v", r.folder, r.may)
}

func below(path, folder string) bool { return path == folder || strings.HasPrefix(path, folder+"/") }

// TestMainIsShort: a program's main only calls internal/cli.
func TestMainIsShort(t *testing.T) {
	const most = 40
	files, err := filepath.Glob("../../cmd/*/*.go")
	if err != nil {
		t.Fatal(err)
	}
	lines := map[string]int{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.HasSuffix(file, "_test.go") {
			lines[filepath.Dir(file)] += bytes.Count(text, []byte("\n"))
		}
	}
	if len(lines) == 0 {
		t.Error("there is no program in cmd")
	}
	for folder, n := range lines {
		if n > most {
			t.Errorf("%s has %d lines of Go, want at most %d: move the rest to internal/cli", folder, n, most)
		}
	}
}

// goList returns the second and later words by the first, for all packages of the three modules.
func goList(t *testing.T, format string) map[string][]string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "list", "-f", format, "./...", "./outbox/...", "./bench/...")
	cmd.Dir = "../.."
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	all := map[string][]string{}
	for line := range strings.Lines(string(out)) {
		words := strings.Fields(line)
		all[words[0]] = words[1:]
	}
	return all
}
