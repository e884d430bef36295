package outboxtest

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestOnlyTransactionsCompile gives the real compiler one function for each thing that somebody may pass to Enqueue. The source
// is laid over this folder, so that it sees the module's dependencies and nothing is written into it.
func TestOnlyTransactionsCompile(t *testing.T) {
	for _, c := range []struct {
		argument string // with x of this type
		of       string
		compiles bool
	}{
		{"x", "*sql.Tx", true},
		{"outbox.Pgx(x)", "pgx.Tx", true},
		{"outbox.Pgx(x)", "*pgxpool.Tx", true},
		{"x", "interface{ outbox.Tx }", true},
		{"x", "*sql.DB", false},
		{"x", "*sql.Conn", false},
		{"x", "pgx.Tx", false},
		{"x", "*pgx.Conn", false},
		{"x", "*pgxpool.Pool", false},
		{"outbox.Pgx(x)", "*pgx.Conn", false},
		{"outbox.Pgx(x)", "*pgxpool.Pool", false},
		{"outbox.Pgx(x)", "*pgxpool.Conn", false},
		{"outbox.Pgx(x)", "*sql.DB", false},
		{"outbox.Pgx(x)", "*sql.Tx", false},
	} {
		t.Run(fmt.Sprintf("%s of %s", c.argument, c.of), func(t *testing.T) {
			t.Parallel()
			out, err := compile(t, fmt.Sprintf("func enqueue(ctx context.Context, box *outbox.Outbox, x %s) {\n"+
				"\tbox.Enqueue(ctx, %s, outbox.Event{})\n}\n", c.of, c.argument))
			if c.compiles && err != nil {
				t.Errorf("does not compile: %s", out)
			}
			if !c.compiles && (err == nil || !strings.Contains(out, "does not implement outbox.Tx") &&
				!strings.Contains(out, "does not match outbox.PgxTx")) {
				t.Errorf("got %v, want a type that is refused:\n%s", err, out)
			}
		})
	}
}

const imports = `package virtual

import (
	"context"
	"database/sql"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pillarbox-dev/pillarbox/outbox"
)

var (
	_ *sql.DB
	_ pgx.Tx
	_ *pgxpool.Pool
)

`

// compile returns what the compiler says of a source.
func compile(t *testing.T, source string) (string, error) {
	t.Helper()
	here, err := os.Getwd()
	must(t, err)
	file, overlay := filepath.Join(t.TempDir(), "virtual.go"), filepath.Join(t.TempDir(), "overlay.json")
	must(t, os.WriteFile(file, []byte(imports+source), 0o600))
	text, err := json.Marshal(map[string]map[string]string{"Replace": {filepath.Join(here, "virtual", "virtual.go"): file}})
	must(t, err)
	must(t, os.WriteFile(overlay, text, 0o600))
	out, err := exec.CommandContext(t.Context(), "go", "build", "-overlay", overlay, "./virtual").CombinedOutput()
	return string(out), err
}
