package approval_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver pgx

	"github.com/pillarbox-dev/pillarbox/contract"
	"github.com/pillarbox-dev/pillarbox/examples/approvals/approval"
	"github.com/pillarbox-dev/pillarbox/internal/pgtest"
	"github.com/pillarbox-dev/pillarbox/outbox"
	"github.com/pillarbox-dev/pillarbox/store/sqlite"
)

// office is a service on a database of its own.
type office struct {
	*testing.T
	*approval.Service
	db *sql.DB
}

// onBoth runs a test on both databases.
func onBoth(t *testing.T, test func(o *office)) {
	t.Run("sqlite", func(t *testing.T) { t.Parallel(); test(newOffice(t, outbox.SQLite, outbox.Options{})) })
	t.Run("postgres", func(t *testing.T) { t.Parallel(); test(newOffice(t, outbox.Postgres, outbox.Options{})) })
}

func newOffice(t *testing.T, dialect outbox.Dialect, options outbox.Options) *office {
	t.Helper()
	if dialect == outbox.Postgres {
		db, err := sql.Open("pgx", pgtest.Database(t))
		must(t, err)
		return officeOn(t, db, dialect, options)
	}
	db, err := sqlite.OpenDB(t.Context(), sqlite.Config{Path: filepath.Join(t.TempDir(), "approvals.db")})
	must(t, err)
	return officeOn(t, db, dialect, options)
}

func officeOn(t *testing.T, db *sql.DB, dialect outbox.Dialect, options outbox.Options) *office {
	t.Helper()
	t.Cleanup(func() { db.Close() })
	schemaName := ""
	if dialect == outbox.Postgres {
		schemaName = "public"
	}
	for range 2 { // a second time does no harm
		must(t, approval.Migrate(t.Context(), db, dialect, schemaName))
	}
	box, err := outbox.New(dialect, options)
	must(t, err)
	contracts, err := contract.Load(contract.Config{FS: os.DirFS("../contracts"), Missing: contract.Quarantine})
	must(t, err)
	s, err := approval.New(approval.Config{DB: db, Dialect: dialect, Events: contract.Checking(box, contracts)})
	must(t, err)
	return &office{t, s, db}
}

var (
	ann = approval.Act{Actor: "user:ann", Reason: "I have read it"}
	bob = approval.Act{Actor: "user:bob", Reason: "so have I", CorrelationID: "c-1"}
	// What is bound, and what asks.
	bound, first, second = digest('a'), digest('1'), digest('2')
)

func digest(c byte) string { return "sha256:" + strings.Repeat(string(c), 64) }

func request(id string) approval.Request {
	return approval.Request{ID: id, Tenant: "acme", Scope: "payments", BindingDigest: bound, Threshold: 2, Lifetime: time.Hour}
}

// approved returns an approval that two have agreed to.
func (o *office) approved(id string) approval.Approval {
	o.Helper()
	_, err := o.Open(o.Context(), request(id))
	must(o, err)
	_, err = o.Agree(o.Context(), id, ann)
	must(o, err)
	a, err := o.Agree(o.Context(), id, bob)
	must(o, err)
	return a
}

// state returns the state and the version of an approval.
func (o *office) state(id string) string {
	o.Helper()
	a, err := o.Show(o.Context(), id)
	must(o, err)
	return fmt.Sprint(a.State, " ", a.Version)
}

// events returns the classes of the events of an approval, in the order of the log.
func (o *office) events(id string) string {
	o.Helper()
	return o.text(`select class from approval_outbox o join outbox_event e on e.event_id = o.event_id
		where approval_id = '` + id + `' order by seq`)
}

// text returns what a query of one column gives, in one line.
func (o *office) text(query string) string {
	o.Helper()
	rows, err := o.db.QueryContext(o.Context(), query)
	must(o, err)
	defer rows.Close()
	var all []string
	for rows.Next() {
		var s string
		must(o, rows.Scan(&s))
		all = append(all, s)
	}
	must(o, rows.Err())
	return strings.Join(all, " ")
}

func (o *office) exec(statement string) {
	o.Helper()
	_, err := o.db.ExecContext(o.Context(), statement)
	must(o, err)
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Each step is told, and nothing else; what is told has the fields of the contract and no more.
func TestEveryStepIsTold(t *testing.T) {
	onBoth(t, func(o *office) {
		_, err := o.Open(o.Context(), request("a-1"))
		must(o, err)
		_, err = o.Agree(o.Context(), "a-1", ann)
		must(o, err)
		again, err := o.Agree(o.Context(), "a-1", ann)
		must(o, err)
		if got := o.state("a-1"); again.Votes != 1 || got != "PENDING 0" || o.events("a-1") != "" {
			o.Errorf("after two votes of one: %d votes, %s, events %q; want 1, PENDING 0, none", again.Votes, got, o.events("a-1"))
		}
		_, err = o.Agree(o.Context(), "a-1", bob)
		must(o, err)
		o.approved("a-2")
		_, err = o.Supersede(o.Context(), "a-1", "a-2", ann)
		must(o, err)
		_, err = o.Revoke(o.Context(), "a-2", ann)
		must(o, err)
		o.approved("a-3")
		_, err = o.Use(o.Context(), "a-3", first, ann)
		must(o, err)
		for id, want := range map[string][2]string{
			"a-1": {"SUPERSEDED 2", "issuance supersession"}, "a-2": {"REVOKED 2", "issuance revocation"},
			"a-3": {"CONSUMED 2", "issuance use"},
		} {
			if got := [2]string{o.state(id), o.events(id)}; got != want {
				o.Errorf("%s: %q, want %q", id, got, want)
			}
		}
		o.wantPayload()
	})
}

// wantPayload compares the supersession of a-1, member by member.
func (o *office) wantPayload() {
	o.Helper()
	text := o.text("select payload from outbox_event where event_type = 'approval.supersession'")
	var got map[string]any
	must(o, json.Unmarshal([]byte(text), &got))
	id := o.text("select event_id from outbox_event where event_type = 'approval.supersession'")
	history := o.text("select event_id from approval_change where class = 'supersession'")
	if at, err := time.Parse(time.RFC3339, fmt.Sprint(got["observed_at"])); err != nil || time.Since(at).Abs() > time.Minute {
		o.Errorf("observed_at = %v, want the time", got["observed_at"])
	}
	delete(got, "observed_at")
	if got["event_id"] != id || history != id {
		o.Errorf("event_id = %v in the payload, %s in the history, %s in the log; want it the same", got["event_id"], history, id)
	}
	delete(got, "event_id")
	want := map[string]any{
		"schema_version": "audit-core.event.v1alpha1", "tenant": "acme", "scope": "payments", "source": "approvals",
		"actor": "user:ann", "action": "approval.supersession", "resource": "approval:a-1", "outcome": "success",
		"reason":  "I have read it",
		"details": map[string]any{"class": "supersession", "approval_id": "a-1", "binding_digest": bound, "superseded_by": "a-2"},
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		o.Errorf("payload\n%v\nwant\n%v", got, want)
	}
	headers := o.text("select headers from outbox_event where event_type = 'approval.issuance' and aggregate_id = 'a-1'")
	if headers != `{"correlationId":"c-1"}` {
		o.Errorf("headers %s, want the correlation id", headers)
	}
}

// Of many that use an approval at once, one does, and there is one event. It may ask again and gets the same answer.
func TestOneUseOfMany(t *testing.T) {
	onBoth(t, func(o *office) {
		for round := range 5 {
			id := fmt.Sprint("a-", round)
			o.approved(id)
			const users = 8
			var uses [users]approval.Use
			var errs [users]error
			var using sync.WaitGroup
			for i := range users {
				using.Go(func() { uses[i], errs[i] = o.Use(o.Context(), id, digest(byte('0'+i)), ann) })
			}
			using.Wait()
			winner := -1
			for i, err := range errs {
				switch {
				case err == nil && winner >= 0:
					o.Errorf("%s was used by %d and by %d", id, winner, i)
				case err == nil:
					winner = i
				case !errors.Is(err, approval.ErrUsed):
					o.Errorf("a user who came too late was told: %v", err)
				}
			}
			if winner < 0 {
				o.Fatalf("%s was used by nobody: %v", id, errs)
			}
			again, err := o.Use(o.Context(), id, uses[winner].RequestDigest, bob)
			if err != nil || again != uses[winner] || again.EventID == "" {
				o.Errorf("the same request again: %+v, %v; want %+v", again, err, uses[winner])
			}
			if got := o.events(id); got != "issuance use" {
				o.Errorf("events of %s: %s, want one use", id, got)
			}
		}
	})
}

// Of many that agree at once, exactly one meets the threshold.
func TestOneIssuanceOfMany(t *testing.T) {
	onBoth(t, func(o *office) {
		r := request("a-1")
		r.Threshold = 5
		_, err := o.Open(o.Context(), r)
		must(o, err)
		var agreeing sync.WaitGroup
		for i := range 8 {
			agreeing.Go(func() {
				_, err := o.Agree(o.Context(), "a-1", approval.Act{Actor: fmt.Sprint("user:", i)})
				if late := (*approval.StateError)(nil); err != nil && (!errors.As(err, &late) || late.Approval.State != approval.Approved) {
					o.Error(err)
				}
			})
		}
		agreeing.Wait()
		if got := o.state("a-1") + ", " + o.events("a-1"); got != "APPROVED 1, issuance" {
			o.Errorf("%s, want one issuance", got)
		}
	})
}

// When the clock crosses expires_at, the approval is seen as expired, nothing can be done with it, and nobody is told.
func TestExpiredIsObserved(t *testing.T) {
	onBoth(t, func(o *office) {
		o.approved("a-1")
		_, err := o.Open(o.Context(), request("a-2"))
		must(o, err)
		o.exec("update approval set expires_at = opened_at")
		_, use := o.Use(o.Context(), "a-1", first, ann)
		_, revoke := o.Revoke(o.Context(), "a-1", ann)
		_, agree := o.Agree(o.Context(), "a-2", ann)
		for _, err := range []error{use, revoke, agree} {
			if e := (*approval.StateError)(nil); !errors.As(err, &e) || e.Approval.State != approval.Expired {
				o.Errorf("got %v, want it EXPIRED", err)
			}
		}
		got := o.state("a-1") + ", " + o.state("a-2") + ", " + o.events("a-1") + o.events("a-2")
		if got != "EXPIRED 1, EXPIRED 0, issuance" {
			o.Errorf("%s, want both expired and nothing told of it", got)
		}
		if got := o.text("select state from approval order by id"); got != "APPROVED PENDING" {
			o.Errorf("the rows say %s: nobody was to write EXPIRED", got)
		}
	})
}

func TestRefused(t *testing.T) {
	onBoth(t, func(o *office) {
		o.approved("a-1")
		_, err := o.Use(o.Context(), "a-1", first, ann)
		must(o, err)
		o.approved("a-2")
		ctx := o.Context()
		for name, tt := range map[string]struct {
			do   func() error
			want string
		}{
			"another request": {func() error { _, err := o.Use(ctx, "a-1", second, ann); return err },
				"use approval a-1: " + approval.ErrUsed.Error()},
			"what was used": {func() error { _, err := o.Revoke(ctx, "a-1", ann); return err },
				"revoke approval a-1: the approval is CONSUMED, and it would have to be APPROVED: ask for a new one"},
			"what is not there": {func() error { _, err := o.Agree(ctx, "a-9", ann); return err },
				"agree to approval a-9: " + approval.ErrNotFound.Error()},
			"no successor": {func() error { _, err := o.Supersede(ctx, "a-2", "a-9", ann); return err },
				"supersede approval a-2: its successor: " + approval.ErrNotFound.Error()},
			"itself": {func() error { _, err := o.Supersede(ctx, "a-2", "a-2", ann); return err },
				"supersede approval a-2: its successor: " + approval.ErrNotFound.Error()},
			"an id again": {func() error { _, err := o.Open(ctx, request("a-1")); return err },
				"open approval a-1: " + approval.ErrExists.Error()},
			"a bad digest": {func() error { _, err := o.Use(ctx, "a-2", "sha256:XYZ", ann); return err },
				"use an approval: the request digest is none: write sha256: and 64 lower-case hex digits"},
			"nobody, with a long story": {
				func() error {
					_, err := o.Revoke(ctx, "a-2", approval.Act{Reason: strings.Repeat("ä", 501)})
					return err
				},
				"revoke approval a-2: the actor has 0 bytes: name who does it, in at most 200\n" +
					"the reason has 501 characters: shorten it to 500"},
			"everything wrong": {func() error { _, err := o.Open(ctx, approval.Request{ID: "no id"}); return err },
				"open an approval: the id is not 1 to 100 of A-Z, a-z, 0-9 and . _ -: choose another\n" +
					"the tenant has 0 bytes: name one, in at most 200\nthe scope has 0 bytes: name one, in at most 200\n" +
					"the binding digest is none: write sha256: and 64 lower-case hex digits\n" +
					"the threshold is 0: choose from 1 to 100\nthe lifetime is 0s: choose from 1s to 8760h0m0s"},
		} {
			if err := tt.do(); err == nil || err.Error() != tt.want {
				o.Errorf("%s: %v\nwant %s", name, err, tt.want)
			}
		}
		got := o.state("a-1") + ", " + o.state("a-2") + ", " + o.text("select count(*) from outbox_event")
		if got != "CONSUMED 2, APPROVED 1, 3" {
			o.Errorf("%s: something was done all the same", got)
		}
	})
}

// When the event cannot be written, the change is not made: no row of it, whatever kind of change it is.
func TestNoEventNoChange(t *testing.T) {
	for _, dialect := range []outbox.Dialect{outbox.SQLite, outbox.Postgres} {
		for name, plant := range map[string]struct {
			options outbox.Options
			fault   string // a statement that breaks the outbox
			mend    string
		}{
			"the log is not there": {fault: "alter table outbox_event rename to elsewhere",
				mend: "alter table elsewhere rename to outbox_event"},
			"the event is too big": {options: outbox.Options{MaxPayloadBytes: 700}},
		} {
			t.Run(dialect.String()+", "+name, func(t *testing.T) {
				t.Parallel()
				o := newOffice(t, dialect, plant.options)
				o.exec("drop view approval_outbox") // it would go along with the table
				o.exec("drop view outbox_status")
				o.approved("a-1")
				o.approved("a-2")
				_, err := o.Open(o.Context(), request("a-3"))
				must(o, err)
				_, err = o.Agree(o.Context(), "a-3", ann)
				must(o, err)
				before := o.everything()
				if plant.fault != "" {
					o.exec(plant.fault)
				}
				act := approval.Act{Actor: "user:carol", Reason: strings.Repeat("x", 500)}
				_, use := o.Use(o.Context(), "a-1", first, act)
				_, supersede := o.Supersede(o.Context(), "a-1", "a-2", act)
				_, revoke := o.Revoke(o.Context(), "a-1", act)
				_, agree := o.Agree(o.Context(), "a-3", act)
				if plant.mend != "" {
					o.exec(plant.mend)
				}
				for change, err := range map[string]error{"use": use, "supersession": supersede, "revocation": revoke, "issuance": agree} {
					if err == nil {
						o.Errorf("the %s was made", change)
					}
				}
				if after := o.everything(); after != before {
					o.Errorf("before and after:\n%s\n%s", before, after)
				}
				_, err = o.Revoke(o.Context(), "a-1", ann)
				must(o, err)
			})
		}
	}
}

// everything is what the tables say of approvals.
func (o *office) everything() string {
	o.Helper()
	return o.text("select id || state || version || votes || coalesce(request_digest, '') from approval order by id") + " | " +
		o.text("select approver from approval_vote order by approval_id, approver") + " | " +
		o.text("select event_id from approval_change order by approval_id, version") + " | " +
		o.text("select event_id from outbox_event order by seq")
}

// The service's own database is the one thing that holds a revocation up. It fails, and can be made when the database is back.
func TestDatabaseOutageBlocks(t *testing.T) {
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		server := pgtest.New(t, pgtest.Options{})
		db, err := sql.Open("pgx", server.Database(t))
		must(t, err)
		o := officeOn(t, db, outbox.Postgres, outbox.Options{})
		o.approved("a-1")
		must(o, server.Down(pgtest.Immediate))
		_, err = o.Revoke(o.Context(), "a-1", ann)
		must(o, server.Up())
		o.blocked(err)
	})
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		path := filepath.Join(t.TempDir(), "approvals.db")
		db, err := sqlite.OpenDB(t.Context(), sqlite.Config{Path: path, BusyTimeout: 50 * time.Millisecond})
		must(t, err)
		o := officeOn(t, db, outbox.SQLite, outbox.Options{})
		o.approved("a-1")
		other, err := sqlite.OpenDB(t.Context(), sqlite.Config{Path: path})
		must(o, err)
		defer other.Close()
		tx, err := other.BeginTx(context.Background(), nil) // it has the write lock, and keeps it
		must(o, err)
		_, err = o.Revoke(o.Context(), "a-1", ann)
		must(o, tx.Rollback())
		o.blocked(err)
	})
}

func (o *office) blocked(err error) {
	o.Helper()
	if err == nil {
		o.Error("the revocation was made without a database")
	}
	if got := o.state("a-1") + ", " + o.events("a-1"); got != "APPROVED 1, issuance" {
		o.Errorf("%s, want it as it was", got)
	}
	if _, err := o.Revoke(o.Context(), "a-1", ann); err != nil {
		o.Errorf("the database is back: %v", err)
	}
}
