package cli

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/pillarbox-dev/pillarbox/internal/config"
	"github.com/pillarbox-dev/pillarbox/ops"
)

// Command lines that are not understood exit with 2, and say in one line what was probably meant.
func TestUsage(t *testing.T) {
	for _, tt := range []struct{ line, want string }{
		{"stats", `unknown command "stats": did you mean "status"?`},
		{"frobnicate", `unknown command "frobnicate": known here: check, contract, demo, discard, events, help, init, jobs, log, ` +
			`migrate, pause, reconcile, repair, replay, reset-cursor, reshard, resume, retention, retry, run, status, version`},
		{"status --jsn", `unknown flag: --jsn: did you mean "--json"?`},
		{"status -x", `unknown shorthand flag: 'x' in -x: known here: --config, --help, --json`},
		{"status extra", `'pillarbox status' takes no argument, and "extra" is one: see 'pillarbox status --help'`},
		{"run --config", `flag needs an argument: --config: see 'pillarbox run --help'`},
		{"run --log-level loud", `--log-level is "loud": it can be debug or info or warn or error`},
		{"run --log-attempts=maybe", `invalid argument "maybe" for "--log-attempts" flag`},
		{"pause", `'pillarbox pause' takes the name of a destination, and there are 0 arguments: see 'pillarbox pause --help'`},
		{"pause a", `--reason is missing: say why, for the next one who looks`},
		{"resume a b", `'pillarbox resume' takes the name of a destination, and there are 2 arguments: see 'pillarbox resume --help'`},
		{"reshard a --shards 3", `--reason is missing: say why, for the next one who looks`},
		{"demo --duration 1ms", `--duration is 1ms: it can be 1s to 1h`},
		{"demo --duration soon", `invalid argument "soon" for "--duration" flag`},
		{"migrate --dialect sqlite", `--dialect and --schema go with --print: the configuration says what is migrated`},
		{"migrate --print --dialect oracle", `--dialect is "oracle": it can be postgres or sqlite`},
		{"migrate --dialect sqlite --print-roles a,b,c", `roles and the wake trigger are PostgreSQL's: SQLite has none`},
		{"migrate --dialect postgres --print-roles a,b", `--print-roles wants three names, as in app,relay,operator: an empty one leaves that role out`},
	} {
		code, out, errOut := runCLI(strings.Fields(tt.line)...)
		if code != exitUsage || out != "" || !strings.HasPrefix(errOut, "pillarbox: "+tt.want) || strings.Count(errOut, "\n") != 1 {
			t.Errorf("pillarbox %s: exit status %d, %q, %q\nwant 2 and: pillarbox: %s", tt.line, code, out, errOut, tt.want)
		}
	}
}

// Every command explains itself, with an example.
func TestHelp(t *testing.T) {
	root := newRoot(&app{})
	for _, cmd := range root.Commands() {
		if cmd.Hidden || cmd.Name() == "help" || cmd.Name() == "completion" {
			continue
		}
		out := must(t, cmd.Name(), "--help")
		if !strings.Contains(out, "Examples:\n  pillarbox "+cmd.Name()) || cmd.Short == "" {
			t.Errorf("pillarbox %s --help has no example:\n%s", cmd.Name(), out)
		}
		for line := range strings.Lines(out) {
			if len([]rune(line)) > 140 {
				t.Errorf("pillarbox %s --help: line of more than 140 characters: %s", cmd.Name(), line)
			}
		}
	}
	for _, line := range []string{"", "help", "--help"} {
		if out := must(t, strings.Fields(line)...); !strings.Contains(out, "Exit status: 0 all is well, 1 something was found or failed, 2") {
			t.Errorf("pillarbox %s does not tell the exit statuses:\n%s", line, out)
		}
	}
}

func TestInit(t *testing.T) {
	file := filepath.Join(t.TempDir(), "own.yaml")
	out := must(t, "init", "-c", file)
	if want := file + " is written: set the database and a destination in it, then run 'pillarbox check'\n"; out != want {
		t.Errorf("printed %q, want %q", out, want)
	}
	if _, err := config.Load(file); err != nil {
		t.Errorf("what init writes does not load: %v", err)
	}
	if err := os.WriteFile(file, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	code, _, errOut := runCLI("init", "-c", file)
	want := "pillarbox: " + file + " is there already: keep it, name another with -c, or overwrite it with --force\n"
	if text, _ := os.ReadFile(file); code != exitFailed || errOut != want || string(text) != "mine" {
		t.Errorf("exit status %d, %q, file %q, want 1, %q and the file as it was", code, errOut, text, want)
	}
	must(t, "init", "--force", "-c", file)
	if text, _ := os.ReadFile(file); string(text) != config.Example() {
		t.Errorf("--force left %q", text)
	}
	code, _, errOut = runCLI("init", "-c", filepath.Join(t.TempDir(), "no", "folder.yaml"))
	if code != exitFailed || !strings.HasSuffix(errOut, "name a file in a folder that you may write to with -c\n") {
		t.Errorf("exit status %d, %q, want 1 and a hint", code, errOut)
	}
}

func TestMigratePrintsWithoutAConfiguration(t *testing.T) {
	t.Chdir(t.TempDir())
	for _, tt := range []struct{ line, want string }{
		{"migrate --print --dialect postgres --schema integration", `set local search_path to "integration", pg_temp;`},
		{"migrate --print --dialect postgres", `set local search_path to "public", pg_temp;`},
		{"migrate --print --dialect sqlite", "begin immediate;"},
		{"migrate --print-roles shop_app,,shop_operator --dialect postgres", `to "shop_operator";`},
		{"migrate --print-wake-trigger --dialect postgres", `create or replace trigger outbox_event_wake`},
	} {
		if out := must(t, strings.Fields(tt.line)...); !strings.Contains(out, tt.want) {
			t.Errorf("pillarbox %s lacks %q:\n%s", tt.line, tt.want, out)
		}
	}
	if out := must(t, "migrate", "--print-roles", "shop_app,,", "--dialect", "postgres"); strings.Contains(out, "operator") {
		t.Errorf("an empty role was not left out:\n%s", out)
	}
}

func TestVersion(t *testing.T) {
	if out := must(t, "version"); !strings.HasPrefix(out, "pillarbox ") || strings.Count(out, "\n") != 1 {
		t.Errorf("printed %q, want one line with the version", out)
	}
}

func TestNumbersForPeople(t *testing.T) {
	for n, want := range map[int64]string{0: "0", 999: "999", 1000: "1,000", 12345678: "12,345,678", -1000: "-1,000", -999: "-999"} {
		if got := grouped(n); got != want {
			t.Errorf("grouped(%d) = %s, want %s", n, got, want)
		}
	}
	for rate, want := range map[float64]string{0: "0.0/s", 0.25: "0.2/s", 9.9: "9.9/s", 185000.4: "185,000/s"} {
		if got := rateText(rate); got != want {
			t.Errorf("rateText(%v) = %s, want %s", rate, got, want)
		}
	}
}

func TestCountText(t *testing.T) {
	for count, want := range map[ops.Count]string{
		{N: 1234}: "1,234", {N: 12345, Estimated: true}: "~12,345", {N: 10000, AtLeast: true}: "10,000+",
		{N: 22345, Estimated: true, AtLeast: true}: "~22,345+",
	} {
		if got := countText(count); got != want {
			t.Errorf("countText(%+v) = %s, want %s", count, got, want)
		}
	}
}

func TestTable(t *testing.T) {
	rows := table{right: []bool{false, true}}
	rows.add("A", "NUMBER", "C")
	rows.add("ä long one", "1", "")
	rows.add("x", "1,000", "end")
	want := "A           NUMBER  C\n" +
		"ä long one       1\n" +
		"x            1,000  end\n"
	if got := rows.String(); got != want {
		t.Errorf("table:\n%swant:\n%s", got, want)
	}
}

// A result that cannot be written is a failure.
func TestResultThatCannotBeWritten(t *testing.T) {
	var errOut strings.Builder
	code := Run([]string{"version"}, full{}, &errOut)
	if want := "pillarbox: write the result: no space left on device\n"; code != exitFailed || errOut.String() != want {
		t.Errorf("exit status %d, %q, want 1, %q", code, errOut.String(), want)
	}
}

type full struct{}

func (full) Write([]byte) (int, error) { return 0, syscall.ENOSPC }
