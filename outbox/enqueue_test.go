package outbox

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
)

// fakePgx stands for a transaction of pgx: it keeps what it was asked and answers with ids.
type fakePgx struct {
	queries []string
	args    [][]any
	present map[string]bool // ids that are in the log already
	taken   map[string]bool // ids whose row meets a number that is there
	err     error           // of Query
	late    error           // of Err, as pgx reports what the server says
	closed  int
}

func (f *fakePgx) Query(_ context.Context, query string, args ...any) (*fakeRows, error) {
	f.queries, f.args = append(f.queries, query), append(f.args, args)
	rows := &fakeRows{tx: f}
	if f.late != nil {
		return rows, f.err
	}
	if strings.HasPrefix(query, "select") {
		for id := range f.present {
			rows.ids = append(rows.ids, "id "+id)
		}
		return rows, f.err
	}
	for i := 0; i < len(args); i += parametersOf(query) {
		if id := args[i].(string); !f.present[id] && !f.taken[id] {
			rows.ids = append(rows.ids, id)
			f.present[id] = true
		}
	}
	return rows, f.err
}

func parametersOf(query string) int {
	if strings.Contains(query, "dedup_key") {
		return wideParameters
	}
	return narrowParameters
}

// rows returns how many rows each statement had.
func (f *fakePgx) rows() []int {
	var all []int
	for i, args := range f.args {
		all = append(all, len(args)/parametersOf(f.queries[i]))
	}
	return all
}

func (f *fakePgx) Commit(context.Context) error   { return errors.New("Enqueue must not commit") }
func (f *fakePgx) Rollback(context.Context) error { return errors.New("Enqueue must not roll back") }

type fakeRows struct {
	tx  *fakePgx
	ids []string
	at  int
}

func (r *fakeRows) Next() bool             { r.at++; return r.at <= len(r.ids) }
func (r *fakeRows) Scan(dest ...any) error { *dest[0].(*string) = r.ids[r.at-1]; return nil }
func (r *fakeRows) Err() error             { return r.tx.late }
func (r *fakeRows) Close()                 { r.tx.closed++ }

func newFake() *fakePgx { return &fakePgx{present: map[string]bool{}} }

func newBox(t testing.TB, opts Options) *Outbox {
	t.Helper()
	box, err := New(Postgres, opts)
	if err != nil {
		t.Fatal(err)
	}
	return box
}

func TestEnqueueParameters(t *testing.T) {
	tx := newFake()
	e := Event{ID: "e1", Topic: "orders", Key: "k", AggregateType: "order", AggregateID: "7", AggregateVersion: 3, Type: "Placed",
		SchemaRef: "ref", Payload: []byte(`{ }`), Headers: map[string]string{"a": "b"}, DedupKey: "d"}
	results, err := newBox(t, Options{}).Enqueue(t.Context(), Pgx(tx), e, Event{ID: "e2", Topic: "t", Type: "T",
		PayloadBytes: []byte{}})
	if err != nil || !slices.Equal(results, []Result{{ID: "e1"}, {ID: "e2"}}) {
		t.Fatalf("got %v, %v", results, err)
	}
	want := []any{"e1", "orders", "k", "order", "7", int64(3), "Placed", int64(1), "ref", `{ }`, `{"a":"b"}`, nil, "d", nil,
		"e2", "t", "", "", "", int64(0), "T", int64(1), "", nil, `{}`, []byte{}, nil, nil}
	if got := fmt.Sprintf("%#v", tx.args); got != fmt.Sprintf("%#v", [][]any{want}) {
		t.Errorf("got %s\nwant %#v", got, want)
	}
	if tx.closed != 1 {
		t.Errorf("rows were closed %d times, want once", tx.closed)
	}

	tx = newFake()
	if _, err := newBox(t, Options{}).Enqueue(t.Context(), Pgx(tx), Event{ID: "e3", Topic: "t", Type: "T",
		Payload: []byte("1")}); err != nil {
		t.Fatal(err)
	}
	want = []any{"e3", "t", "", "", "", int64(0), "T", int64(1), "", "1", `{}`}
	if got := fmt.Sprintf("%#v", tx.args); got != fmt.Sprintf("%#v", [][]any{want}) {
		t.Errorf("an event that needs less: got %s\nwant %#v", got, want)
	}
}

func TestEnqueueNothing(t *testing.T) {
	tx := newFake()
	results, err := newBox(t, Options{}).Enqueue(t.Context(), Pgx(tx))
	if err != nil || len(results) != 0 || len(tx.queries) != 0 {
		t.Errorf("got %v, %v and %d statements; want nothing", results, err, len(tx.queries))
	}
}

func TestEnqueueInvalidSendsNothing(t *testing.T) {
	tx := newFake()
	_, err := newBox(t, Options{}).Enqueue(t.Context(), Pgx(tx), Event{Topic: "t", Type: "T"}, Event{})
	var invalid *InvalidError
	if !errors.As(err, &invalid) || len(tx.queries) != 0 {
		t.Errorf("got %v and %d statements, want an InvalidError and none", err, len(tx.queries))
	}
}

func TestEnqueueDuplicates(t *testing.T) {
	tx := newFake()
	tx.present["old"] = true
	event := func(id string) Event { return Event{ID: id, Topic: "t", Type: "T"} }
	results, err := newBox(t, Options{}).Enqueue(t.Context(), Pgx(tx), event("a"), event("old"), event("a"), event("b"))
	want := []Result{{"a", false}, {"old", true}, {"a", true}, {"b", false}}
	if err != nil || !slices.Equal(results, want) {
		t.Errorf("got %v, %v; want %v", results, err, want)
	}
	if len(tx.queries) != 1 {
		t.Errorf("%d statements, want one", len(tx.queries))
	}
}

// TestPassedOverForItsNumber: a row that was not written although neither its id nor its key was there is no duplicate.
func TestPassedOverForItsNumber(t *testing.T) {
	keyed := func(id string) Event { return Event{ID: id, Topic: "t", Type: "T", DedupKey: "k-" + id} }
	for _, events := range [][]Event{{keyed("lost")}, {keyed("a"), keyed("lost"), keyed("old")}} {
		tx := newFake()
		tx.taken, tx.present["old"] = map[string]bool{"lost": true}, true
		_, err := newBox(t, Options{}).Enqueue(t.Context(), Pgx(tx), events...)
		if err == nil || !strings.Contains(err.Error(), "event lost was not written") || !strings.Contains(err.Error(), "setval") {
			t.Errorf("got %v, want the event and a hint", err)
		}
	}
	tx := newFake()
	tx.present["old"] = true
	results, err := newBox(t, Options{}).Enqueue(t.Context(), Pgx(tx), keyed("old"))
	if err != nil || !results[0].Duplicate || len(tx.queries) != 2 {
		t.Errorf("a true duplicate: got %v, %v with %d statements", results, err, len(tx.queries))
	}
}

func TestEnqueueErrors(t *testing.T) {
	state := func(code string) error { return &stateError{code} }
	for _, c := range []struct {
		err  error
		want string
	}{
		{state("42P01"), "pillarbox migrate"}, {state("3F000"), "pillarbox migrate"}, {state("42501"), "--print-roles"},
		{state("23505"), "setval"},
		{state("25P02"), "roll back"}, {state("40001"), "again"}, {state("40P01"), "again"}, {state("57014"), "57014"},
		{errors.New("no such table: outbox_event"), "pillarbox migrate"},
		{errors.New("database is locked (5) (SQLITE_BUSY)"), "BEGIN IMMEDIATE"},
		{errors.New("broken pipe"), "broken pipe"},
	} {
		for _, tx := range []*fakePgx{{err: c.err}, {late: c.err}} {
			tx.present = map[string]bool{}
			_, err := newBox(t, Options{}).Enqueue(t.Context(), Pgx(tx), Event{Topic: "t", Type: "T"})
			if !errors.Is(err, c.err) || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "event 0") {
				t.Errorf("got %v, want %v wrapped, the event and %q", err, c.err, c.want)
			}
		}
	}
}

type stateError struct{ code string }

func (e *stateError) Error() string    { return "ERROR (SQLSTATE " + e.code + ")" }
func (e *stateError) SQLState() string { return e.code }

// noTx has the methods that keep pools out, and nothing else.
type noTx struct{}

func (noTx) Commit() error   { return nil }
func (noTx) Rollback() error { return nil }

func TestEnqueueInWhatCannotBeQueried(t *testing.T) {
	_, err := newBox(t, Options{}).Enqueue(t.Context(), noTx{}, Event{Topic: "t", Type: "T"})
	if err == nil || !strings.Contains(err.Error(), "outbox.noTx") || !strings.Contains(err.Error(), "outbox.Pgx(tx)") {
		t.Errorf("got %v, want an error that says what to pass", err)
	}
}

// TestChunks: how many statements a call makes, that no more texts exist than were meant, and that all parameters are there.
func TestChunks(t *testing.T) {
	for _, c := range []struct {
		events int
		want   []int
	}{
		{1, []int{1}}, {2, []int{2}}, {16, []int{16}}, {17, []int{16, 1}}, {31, []int{16, 15}}, {32, []int{32}},
		{100, []int{64, 32, 4}}, {512, []int{512}}, {1500, []int{512, 512, 256, 128, 64, 16, 12}},
	} {
		tx := newFake()
		results, err := newBox(t, Options{}).Enqueue(t.Context(), Pgx(tx), repeat(c.events, nil)...)
		if err != nil || len(results) != c.events {
			t.Fatalf("%d events: %d results, %v", c.events, len(results), err)
		}
		got := tx.rows()
		for i, args := range tx.args {
			if last := fmt.Sprintf("$%d)", len(args)); strings.Count(tx.queries[i], last) != 1 {
				t.Errorf("%d events: statement %d has not %d parameters", c.events, i, len(args))
			}
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%d events: statements of %v, want %v", c.events, got, c.want)
		}
	}
	for _, d := range []Dialect{Postgres, SQLite} {
		all := newStatements(d, Options{Schema: "s"})
		if len(all.narrow) != 21 || len(all.wide) != 21 || wideParameters*maxRows > 32766 {
			t.Errorf("%v: %d and %d statements, want 21 of each", d, len(all.narrow), len(all.wide))
		}
	}
}

func TestChunksAreBoundedInBytes(t *testing.T) {
	tx := newFake()
	big := make([]byte, 5<<20)
	if _, err := newBox(t, Options{MaxPayloadBytes: 32 << 20}).Enqueue(t.Context(), Pgx(tx),
		append(repeat(7, big), repeat(1, make([]byte, 20<<20))...)...); err != nil {
		t.Fatal(err)
	}
	if got, want := tx.rows(), []int{3, 3, 1, 1}; !slices.Equal(got, want) {
		t.Errorf("statements of %v, want %v", got, want)
	}
}

func repeat(n int, payload []byte) []Event {
	return slices.Repeat([]Event{{Topic: "t", Type: "T", PayloadBytes: payload}}, n)
}

func TestStatement(t *testing.T) {
	for _, c := range []struct {
		name string
		d    Dialect
		opts Options
		want string
	}{
		{"quoted", Postgres, Options{Schema: `a"b'c`}, `insert into "a""b'c".outbox_event `},
		{"wakes", Postgres, Options{Schema: `a"b'c`},
			`pg_notify('pillarbox', 'a"b''c')::text from "a""b'c".outbox_cursor where asleep`},
		{"SQLite", SQLite, Options{}, `insert into outbox_event (event_id`},
	} {
		box, err := New(c.d, c.opts)
		if err != nil {
			t.Fatal(err)
		}
		if got := box.statements.narrow[1]; !strings.Contains(got, c.want) {
			t.Errorf("%s: %s\nholds no %s", c.name, got, c.want)
		}
	}
	for d, opts := range map[Dialect]Options{Postgres: {NoNotify: true}, SQLite: {}} {
		box, err := New(d, opts)
		if err != nil {
			t.Fatal(err)
		}
		if got := box.statements.narrow[1] + box.statements.wide[1]; strings.Contains(got, "pg_notify") {
			t.Errorf("%v with %v notifies: %s", d, opts, got)
		}
	}
}

// TestNoDependencies holds the module at zero requirements: services import it into their transactions.
func TestNoDependencies(t *testing.T) {
	mod, err := os.ReadFile("go.mod")
	if err != nil {
		t.Fatal(err)
	}
	if problem := requirement(string(mod)); problem != "" {
		t.Errorf("go.mod: %s: take the dependency out again; tests that need one belong in internal/outboxtest", problem)
	}
	for _, bad := range []string{"module m\nrequire a.b/c v1.0.0\n", "require (\n\ta.b/c v1.0.0\n)", "replace a => b",
		"tool a.b/c"} {
		if requirement(bad) == "" {
			t.Errorf("%q passes", bad)
		}
	}
}

// requirement returns the first line that is neither empty, a comment, nor the module's own name and version.
func requirement(mod string) string {
	for line := range strings.Lines(mod) {
		word, _, _ := strings.Cut(strings.TrimSpace(line), " ")
		if word != "" && word != "module" && word != "go" && word != "toolchain" && !strings.HasPrefix(word, "//") {
			return strings.TrimSpace(line)
		}
	}
	return ""
}

func BenchmarkEnqueue(b *testing.B) {
	box := newBox(b, Options{})
	for _, n := range []int{1, 100} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			events := repeat(n, nil)
			for i := range events {
				events[i].Payload = []byte(`{"caseId":"CASE-1","note":"` + strings.Repeat("x", 390) + `"}`)
				events[i].Headers = map[string]string{"correlationId": "c-1", "x-tenant": "acme"}
			}
			b.ReportAllocs()
			for b.Loop() {
				if _, err := box.Enqueue(b.Context(), Pgx(newFake()), events...); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
