package ops_test

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/pillarbox-dev/pillarbox/ops"
	"github.com/pillarbox-dev/pillarbox/outbox/schema"
	"github.com/pillarbox-dev/pillarbox/relay"
)

// aged makes an outbox of 30 events: 1–10 are 40 days old, 11–20 10 days, 21–30 new. Odd ones are orders, even ones bills. Two
// destinations have passed all of them; d has published what it wanted, and e keeps no ledger.
func (b *box) aged() {
	b.Helper()
	for _, age := range []time.Duration{40 * day, 10 * day, time.Minute} {
		b.events(10, "bills", age)
	}
	b.exec("update outbox_event set topic_name = 'orders' where seq % 2 = 1")
	b.cursor("d", 30)
	b.cursor("e", 30)
	b.deliveries(30, "PUBLISHED", 1)
}

func (b *box) retain(c ops.RetentionConfig) ops.RetentionReport {
	b.Helper()
	report, err := b.Retain(b.Context(), c)
	b.must(err)
	return report
}

// left returns the numbers of the events, and of the rows in the ledger, that are still there.
func (b *box) left() (events, deliveries string) {
	b.Helper()
	return b.seqs("select seq from outbox_event order by seq"), b.seqs("select seq from outbox_delivery order by seq, destination")
}

func through(first, last int) string {
	var all []string
	for i := first; i <= last; i++ {
		all = append(all, fmt.Sprint(i))
	}
	return strings.Join(all, " ")
}

var month = []ops.RetentionRule{{After: 30 * day}}

func TestRetainByTopicAndAge(t *testing.T) {
	onBoth(t, func(b *box) {
		b.aged()
		before := b.seqs("select event_id from outbox_event where seq % 2 = 1 and seq <= 20 order by seq")
		rules := []ops.RetentionRule{
			{Topics: relay.Topics{"ord*"}, After: 7 * day, Archive: true},
			{Topics: relay.Topics{"none", "bil*"}, After: 30 * day},
		}
		dry := b.retain(ops.RetentionConfig{Rules: rules, DryRun: true})
		if dry.Events != 15 || dry.Archived != 10 || dry.Horizon != 30 {
			b.Errorf("dry run = %+v, want 15 events, 10 of them archived", dry)
		}
		if events, _ := b.left(); events != through(1, 30) {
			b.Errorf("a dry run has left %s", events)
		}
		report := b.retain(ops.RetentionConfig{Rules: rules, Chunk: 3, Pause: -1})
		if report.Events != 15 || report.Archived != 10 || report.Kept != 0 || !report.Finished || report.Took <= 0 {
			b.Errorf("report = %+v, want 15 events, 10 of them archived", report)
		}
		want := "12 14 16 18 20 " + through(21, 30)
		if events, deliveries := b.left(); events != want || deliveries != want {
			b.Errorf("left = %s and %s, want %s", events, deliveries, want)
		}
		if got := b.seqs("select event_id from outbox_event_archive order by seq"); got != before {
			b.Errorf("archived = %s, want %s", got, before)
		}
		if got := b.seqs("select seq from outbox_delivery_archive where status = 'PUBLISHED' and published_at is not null order by seq"); got !=
			"1 3 5 7 9 11 13 15 17 19" {
			b.Errorf("archived deliveries = %s", got)
		}
		if again := b.retain(ops.RetentionConfig{Rules: rules}); again.Events != 0 || !again.Finished {
			b.Errorf("again = %+v, want nothing to do", again)
		}
	})
}

// What is not settled stays, wherever that is, and so does what is not passed.
func TestRetainKeepsWhatIsNotSettled(t *testing.T) {
	onBoth(t, func(b *box) {
		b.aged()
		for seq, status := range map[int]string{1: "FAILED", 2: "QUARANTINED", 3: "PENDING", 4: "PUBLISHING", 5: "DISCARDED", 6: "DISCARDED"} {
			b.exec(fmt.Sprintf("update outbox_delivery set status = '%s' where seq = %d", status, seq))
		}
		clock := map[schema.Dialect]string{schema.Postgres: "clock_timestamp()", schema.SQLite: "1"}[b.dialect]
		b.exec("update outbox_delivery set next_attempt_at = " + clock + " where seq = 6") // its lane has to go on yet
		b.exec("insert into outbox_delivery (destination, seq, status) values ('gone', 7, 'FAILED')")
		b.exec("insert into outbox_delivery (destination, seq, status) values ('gone', 5, 'PUBLISHED')")
		report := b.retain(ops.RetentionConfig{Rules: month, Pause: -1})
		if report.Events != 4 || report.Kept != 6 {
			b.Errorf("report = %+v, want 4 events and 6 that are kept", report)
		}
		if events, deliveries := b.left(); events != "1 2 3 4 6 7 "+through(11, 30) || deliveries != "1 2 3 4 6 7 7 "+through(11, 30) {
			b.Errorf("left = %s and %s", events, deliveries)
		}
	})
}

// Nothing above a cursor is touched, nothing that a replay wants, and nothing before every destination has begun.
func TestRetainStaysBelow(t *testing.T) {
	onBoth(t, func(b *box) {
		b.aged()
		b.exec("update outbox_cursor set position = 8 where destination = 'e'")
		b.exec("insert into outbox_cursor (destination, shard, position) values ('d', 1, 6)")
		if report := b.retain(ops.RetentionConfig{Rules: month, Destinations: []string{"d", "new"}}); report.Events != 0 ||
			report.Horizon != 0 || report.HeldBy != "new" {
			b.Errorf("report = %+v, want it held by what has not begun", report)
		}
		j := b.startJob(ops.JobRequest{Kind: ops.JobReplay, Filter: ops.Filter{FromSeq: 4}})
		j, err := b.PauseJob(b.Context(), j.ID, j.Version, ops.Action{By: "ann"})
		b.must(err)
		if report := b.retain(ops.RetentionConfig{Rules: month, Destinations: []string{"d"}}); report.Events != 3 ||
			report.HeldBy != fmt.Sprint("job ", j.ID) {
			b.Errorf("report = %+v, want it held by the replay", report)
		}
		_, err = b.CancelJob(b.Context(), j.ID, j.Version, ops.Action{By: "ann"})
		b.must(err)
		if report := b.retain(ops.RetentionConfig{Rules: month}); report.Events != 3 || report.HeldBy != "d" || report.Horizon != 6 {
			b.Errorf("report = %+v, want it held by the lowest shard", report)
		}
		b.exec("delete from outbox_cursor where shard = 1")
		if b.dialect == schema.Postgres {
			b.exec("update outbox_cursor set gaps = '{[8,9)}' where destination = 'd'")
		} else {
			b.exec("update outbox_delivery set status = 'FAILED' where seq = 8") // it has no gaps
		}
		if report := b.retain(ops.RetentionConfig{Rules: month}); report.Events != 1 || report.Kept != 1 {
			b.Errorf("report = %+v, want one, and one kept that lies in a gap", report)
		}
		if events, _ := b.left(); events != through(8, 30) {
			b.Errorf("left = %s", events)
		}
		b.exec("delete from outbox_cursor")
		if report := b.retain(ops.RetentionConfig{Rules: month}); report.Events != 0 || report.Horizon != 0 || !report.Finished {
			b.Errorf("report = %+v, want nothing without a destination", report)
		}
	})
}

// A destination whose first row in the ledger is written while retention is under way, as by a replay to one that keeps none, is
// heeded from then on.
func TestRetainSeesALedgerThatBegins(t *testing.T) {
	onBoth(t, func(b *box) {
		b.aged()
		replayed := "insert into outbox_delivery (destination, seq, status, next_attempt_at) values ('e', 8, 'PENDING', "
		if b.dialect == schema.Postgres {
			b.exec("create function replayed() returns trigger language plpgsql as $$ begin " + replayed +
				"now()); return null; end $$")
			b.exec("create trigger replayed after delete on outbox_event for each row when (old.seq = 1) execute function replayed()")
		} else {
			b.exec("create trigger replayed after delete on outbox_event when old.seq = 1 begin " + replayed + "1); end")
		}
		if report := b.retain(ops.RetentionConfig{Rules: month, Chunk: 3, Pause: -1}); report.Events != 9 || report.Kept != 1 {
			b.Errorf("report = %+v, want 9 events and 1 that is kept", report)
		}
		if events, deliveries := b.left(); events != "8 "+through(11, 30) || deliveries != "8 8 "+through(11, 30) {
			b.Errorf("left = %s and %s", events, deliveries)
		}
	})
}

// What an operator works on at this moment is passed over.
func TestRetainPassesOverWhatIsLocked(t *testing.T) {
	b := newBox(t, schema.Postgres)
	b.aged()
	tx, err := b.db.BeginTx(t.Context(), nil)
	b.must(err)
	defer tx.Rollback()
	if _, err := tx.ExecContext(t.Context(), "select from outbox_event where seq in (2, 5) for no key update"); err != nil {
		t.Fatal(err)
	}
	if report := b.retain(ops.RetentionConfig{Rules: month}); report.Events != 8 || report.Kept != 2 {
		t.Errorf("report = %+v, want 8, and 2 kept", report)
	}
}

// The task does not look again at what it has passed, until its sweep is due.
func TestRetentionTaskRemembers(t *testing.T) {
	onBoth(t, func(b *box) {
		b.aged()
		b.exec("update outbox_delivery set status = 'QUARANTINED' where seq = 3")
		config := ops.RetentionConfig{Rules: []ops.RetentionRule{{Topics: relay.Topics{"orders"}, After: 30 * day}}, Pause: -1}
		run := func(want int64, what string) {
			b.Helper()
			var got ops.RetentionReport
			task := b.RetentionTask(time.Hour, config, func(r ops.RetentionReport) { got = r })
			if err := task.Run(b.Context()); err != nil || got.Events != want || !got.Finished {
				b.Errorf("%s: %+v, %v; want %d events", what, got, err, want)
			}
		}
		run(4, "the first run") // 3 is quarantined, and no rule is for the bills
		b.exec("update outbox_delivery set status = 'DISCARDED' where seq = 3")
		run(0, "the second run")
		month := map[schema.Dialect]string{schema.Postgres: "interval '30 days'", schema.SQLite: "2592000000000"}[b.dialect]
		b.exec("update outbox_event set created_at = created_at - " + month + " where seq between 11 and 20")
		run(5, "what has become old")
		state := func() (s struct {
			Passed  []int64
			SweptAt time.Time           `json:"swept_at"`
			Last    ops.RetentionReport `json:"last"`
			Rules   []ops.RetentionRule `json:"rules"`
		}) {
			b.must(json.Unmarshal([]byte(b.seqs("select state from outbox_task where name = 'retention'")), &s))
			return s
		}
		if s := state(); s.Passed[0] != 20 || s.Last.Events != 5 || len(s.Rules) != 1 {
			b.Errorf("state = %+v, want it at 20", s)
		}
		s := state()
		s.SweptAt = s.SweptAt.Add(-25 * time.Hour)
		text, err := json.Marshal(map[string]any{"rules": s.Rules, "passed": s.Passed, "swept_at": s.SweptAt})
		b.must(err)
		b.exec("update outbox_task set state = '" + string(text) + "'")
		run(1, "the sweep")
		config.Rules = []ops.RetentionRule{{After: 30 * day}}
		run(10, "other rules")
		if events, _ := b.left(); events != through(21, 30) {
			b.Errorf("left = %s", events)
		}
	})
}

// Each run that is broken off, and each one that runs beside another, leaves a whole: an event goes with all its deliveries.
func TestRetainSideBySide(t *testing.T) {
	onBoth(t, func(b *box) {
		const n = 4_000
		b.events(n, "orders", 40*day)
		b.cursor("d", n)
		b.deliveries(n, "PUBLISHED", 1)
		ctx, stop := context.WithCancel(b.Context())
		defer stop()
		reports := make(chan ops.RetentionReport, 3)
		for range 3 {
			go func() {
				report, err := b.Retain(ctx, ops.RetentionConfig{Rules: []ops.RetentionRule{{After: day, Archive: true}}, Chunk: 50, Pause: -1})
				if err != nil && !errors.Is(err, context.Canceled) {
					b.Errorf("retain: %v", err)
				}
				reports <- report
			}()
		}
		b.await("some are gone", func() bool { return b.seqs("select count(*) from outbox_event_archive") != "0" })
		stop()
		for range 3 {
			<-reports
		}
		b.retain(ops.RetentionConfig{Rules: []ops.RetentionRule{{After: day, Archive: true}}, Pause: -1})
		if events, deliveries := b.left(); events != "" || deliveries != "" {
			b.Errorf("left = %s and %s", events, deliveries)
		}
		for _, table := range []string{"outbox_event_archive", "outbox_delivery_archive"} {
			if got := b.seqs("select count(*) || ' ' || count(distinct seq) from " + table); got != fmt.Sprintf("%d %d", n, n) {
				b.Errorf("%s = %s, want each once", table, got)
			}
		}
	})
}

func TestRetainRefuses(t *testing.T) {
	onBoth(t, func(b *box) {
		_, err := b.Retain(b.Context(), ops.RetentionConfig{Chunk: -1, Rules: []ops.RetentionRule{{}, {Topics: relay.Topics{""}, After: 1}}})
		if refused := (*ops.RefusedError)(nil); !errors.As(err, &refused) || strings.Count(err.Error(), "\n") != 3 {
			b.Errorf("got %v, want four problems at once", err)
		}
		if _, err := b.Retain(b.Context(), ops.RetentionConfig{}); err == nil {
			b.Error("no rules: got no error")
		}
	})
}

// An operator's role may do all of it; a relay's is told, once, what it lacks, and goes on with what it may.
func TestRolesOfJobsAndRetention(t *testing.T) {
	b := newBox(t, schema.Postgres)
	b.aged()
	b.exec("update outbox_delivery set status = 'QUARANTINED' where seq = 2")
	name := b.database()
	text, err := schema.PrintRoles(b.schema, "", name+"_relay", name+"_operator")
	b.must(err)
	pools := map[string]*sql.DB{}
	for _, role := range []string{"relay", "operator"} {
		b.exec("create role " + schema.Quote(name+"_"+role) + " login")
		t.Cleanup(func() {
			_, err := b.db.ExecContext(context.Background(), fmt.Sprintf("drop owned by %[1]s; drop role %[1]s", schema.Quote(name+"_"+role)))
			b.must(err)
		})
		pools[role], err = sql.Open("pgx", asRole(t, b.address, name+"_"+role))
		b.must(err)
		t.Cleanup(func() { pools[role].Close() })
	}
	b.exec(text)
	operator, err := ops.New(pools["operator"], schema.Postgres, b.schema)
	b.must(err)
	relayRole, err := ops.New(pools["relay"], schema.Postgres, b.schema)
	b.must(err)

	admin := b.Ops
	b.Ops = operator
	j := b.finish(b.startJob(ops.JobRequest{Kind: ops.JobReplay, Filter: ops.Filter{FromSeq: 5}}).ID)
	if j.State != ops.JobDone || j.Affected != 26 {
		t.Errorf("job = %+v, want it done", j)
	}
	if report := b.retain(ops.RetentionConfig{Rules: []ops.RetentionRule{{After: 30 * day, Archive: true}}}); report.Archived != 3 {
		t.Errorf("report = %+v, want 3", report)
	}
	b.must(operator.RetentionTask(time.Hour, ops.RetentionConfig{Rules: month}, nil).Run(t.Context()))
	b.Ops = admin

	_, err = relayRole.Retain(t.Context(), ops.RetentionConfig{Rules: month})
	if err == nil || !strings.Contains(err.Error(), "--print-roles") {
		t.Errorf("retention in the relay's role: %v, want what helps", err)
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var log bytes.Buffer
	runs := 0
	retention := relayRole.RetentionTask(time.Millisecond, ops.RetentionConfig{Rules: month}, nil)
	relayRole.RunTasks(ctx, "r", []ops.Task{{Name: "retention", Every: time.Millisecond, Run: func(ctx context.Context) error {
		if runs++; runs == 3 {
			stop()
		}
		return retention.Run(ctx)
	}}}, slog.New(slog.NewTextHandler(&log, nil)))
	if got := strings.Count(log.String(), "--print-roles"); got != 1 {
		t.Errorf("told %d times, want once:\n%s", got, log.String())
	}
}

// asRole is the address with another user, who needs no password.
func asRole(t *testing.T, address, role string) string {
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	u.User = url.User(role)
	return u.String()
}

// A run that is told to end says so, wherever in a chunk it is: not that its transaction is gone.
func TestRetainIsToldToEnd(t *testing.T) {
	onBoth(t, func(b *box) {
		b.events(2000, "bills", 40*day)
		b.cursor("d", 2000)
		stop := errors.New("stop")
		ended := 0
		for range 60 {
			ctx, cancel := context.WithCancelCause(b.Context())
			timer := time.AfterFunc(rand.N(20*time.Millisecond), func() { cancel(stop) })
			_, err := b.Retain(ctx, ops.RetentionConfig{Rules: month, Chunk: 5, Pause: time.Duration(ended%2) * time.Millisecond})
			timer.Stop()
			cancel(nil)
			if err == nil {
				break
			}
			ended++
			if !errors.Is(err, stop) && !errors.Is(err, context.Canceled) {
				b.Fatalf("run %d ended with %v, want it to say that it was told to", ended, err)
			}
		}
		if ended < 3 {
			b.Errorf("%d runs were ended: the test is about nothing", ended)
		}
	})
}
