package contract

import (
	"database/sql"
	"errors"
	"path/filepath"
	"testing"

	"github.com/pillarbox-dev/pillarbox/outbox"
	"github.com/pillarbox-dev/pillarbox/outbox/schema"
	_ "modernc.org/sqlite"
)

func TestChecked(t *testing.T) {
	contracts := load(t,
		map[string]string{"case.v1.json": `{"required":["a"],"properties":{"a":{"type":"number"},"b":{"maxItems":1}}}`},
		func(c *Config) { c.Missing = Quarantine })
	db, err := sql.Open("sqlite", "file:"+filepath.Join(t.TempDir(), "app.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := schema.Migrate(t.Context(), db, schema.SQLite, ""); err != nil {
		t.Fatal(err)
	}
	box, err := outbox.New(outbox.SQLite, outbox.Options{})
	if err != nil {
		t.Fatal(err)
	}
	tx, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback()
	event := func(ref, payload string) outbox.Event {
		return outbox.Event{Topic: "cases", Type: "T", SchemaRef: ref, Payload: []byte(payload)}
	}
	checked := Checking(box, contracts)

	_, err = checked.Enqueue(t.Context(), tx, event("case.v1", `{"a":1}`), event("case.v1", `{"a":"secret","b":[1,2]}`),
		event("case.v2", `{}`), event("", `{}`),
		outbox.Event{Topic: "cases", Type: "T", SchemaRef: "case.v1", PayloadBytes: []byte{1}})
	var invalid *outbox.InvalidError
	if !errors.As(err, &invalid) {
		t.Fatalf("error %v, want an *outbox.InvalidError", err)
	}
	want := []string{
		"event 1: Payload/a must be number, and is string: the contract is case.v1",
		"event 1: Payload/b must have at most 1 items, and has 2: the contract is case.v1",
		"event 2: SchemaRef names a contract that is not there: add its schema, or correct it",
		"event 3: SchemaRef is empty: name the contract that the payload keeps",
		"event 4: Payload is not JSON, and the contract is a JSON Schema: the contract is case.v1",
	}
	for i, p := range invalid.Problems {
		if i >= len(want) || p.String() != want[i] {
			t.Errorf("problem %d: %s, want one of %q", i, p, want)
		}
	}
	if len(invalid.Problems) != len(want) {
		t.Errorf("%d problems, want %d", len(invalid.Problems), len(want))
	}

	// The transaction is as good as before, and what keeps its contract is written; a tombstone too.
	results, err := checked.Enqueue(t.Context(), tx, event("case.v1", `{"a":1}`), outbox.Event{Topic: "cases", Type: "T",
		SchemaRef: "case.v1"})
	if err != nil || len(results) != 2 {
		t.Fatalf("%d results, error %v, want 2", len(results), err)
	}
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	var n int
	if err := db.QueryRowContext(t.Context(), "select count(*) from outbox_event").Scan(&n); err != nil || n != 2 {
		t.Errorf("%d events, error %v, want the 2 that keep their contract", n, err)
	}
}
