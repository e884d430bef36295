package ops_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pillarbox-dev/pillarbox/ops"
	"github.com/pillarbox-dev/pillarbox/outbox/schema"
	"github.com/pillarbox-dev/pillarbox/relay"
)

// startJob starts a job on the destination d.
func (b *box) startJob(r ops.JobRequest) ops.Job {
	b.Helper()
	r.Filter.Destination = "d"
	if r.RatePerSecond == 0 {
		r.RatePerSecond = ops.MaxJobRate
	}
	j, err := b.StartJob(b.Context(), r, ops.Action{By: "ann", Reason: "the fix is out"})
	b.must(err)
	return j
}

// finish runs jobs until this one is at an end.
func (b *box) finish(id int64) ops.Job {
	b.Helper()
	ctx, stop := context.WithTimeout(b.Context(), time.Minute)
	defer stop()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		b.RunJobs(ctx, slog.New(slog.DiscardHandler))
	}()
	defer func() { stop(); <-ended }()
	for {
		j, err := b.Job(ctx, id)
		b.must(err)
		if j.State != ops.JobRunning {
			return j
		}
		time.Sleep(5 * time.Millisecond) // a poll
	}
}

// seqs returns numbers, joined.
func (b *box) seqs(query string) string {
	b.Helper()
	rows, err := b.db.QueryContext(b.Context(), query)
	b.must(err)
	defer rows.Close()
	var all []string
	for rows.Next() {
		var seq string
		b.must(rows.Scan(&seq))
		all = append(all, seq)
	}
	b.must(rows.Err())
	return strings.Join(all, " ")
}

func (b *box) withStatus(status string) string {
	b.Helper()
	return b.seqs("select seq from outbox_delivery where destination = 'd' and status = '" + status + "' order by seq")
}

// ledger makes an outbox of 20 events: 1–4 PUBLISHED, 5–8 QUARANTINED, 9–10 FAILED, 11 DISCARDED, 12 PENDING, 13 PUBLISHING,
// 14–16 without a row below the cursor (15 in a gap, where there are any), 17–20 above it; 17 PUBLISHED already. Odd ones
// have a key.
func (b *box) ledger() {
	b.Helper()
	b.events(20, "orders", time.Hour)
	b.exec("update outbox_event set partition_key = 'k' where seq % 2 = 1")
	b.exec("update outbox_event set topic_name = 'other' where seq = 16")
	b.cursor("d", 16, "orders")
	for _, part := range []struct {
		status   string
		first, n int
	}{{"PUBLISHED", 1, 4}, {"QUARANTINED", 5, 4}, {"FAILED", 9, 2}, {"DISCARDED", 11, 1}, {"PENDING", 12, 1}, {"PUBLISHING", 13, 1},
		{"PUBLISHED", 17, 1}} {
		b.deliveries(part.n, part.status, part.first)
	}
	b.exec(`update outbox_delivery set attempt_count = 3, last_error_code = 'HTTP_422', last_error_message = 'no'
		where seq between 5 and 10`)
	if b.dialect == schema.Postgres {
		b.exec("update outbox_cursor set gaps = '{[15,16)}'")
	}
}

func TestJobRetries(t *testing.T) {
	onBoth(t, func(b *box) {
		b.ledger()
		b.exec("update outbox_delivery set last_error_code = 'TIMEOUT' where seq = 7")
		j := b.startJob(ops.JobRequest{Kind: ops.JobRetry, Filter: ops.Filter{ErrorCode: "HTTP_422"}})
		if j.State != ops.JobRunning || j.FromSeq != 1 || j.ToSeq != 20 || j.Position != 0 || j.Version != 1 || j.CreatedBy != "ann" {
			b.Errorf("job = %+v, want one that begins at 1", j)
		}
		j = b.finish(j.ID)
		if j.State != ops.JobDone || j.Affected != 5 || j.Skipped != 0 || j.Position != 20 || j.FinishedAt == nil || j.LastError != "" {
			b.Errorf("job = %+v, want 5 done", j)
		}
		if got := b.withStatus("PENDING"); got != "5 6 8 9 10 12" {
			b.Errorf("pending = %s", got)
		}
		good := `select seq from outbox_delivery where status = 'PENDING' and seq <> 12 and attempt_count = 0
			and next_attempt_at is not null and endpoint = '' and last_error_code is null and last_error_message is null
			and published_at is null
			and coalesce(partition_key, '') = case when seq % 2 = 1 then 'k' else '' end order by seq`
		if got := b.seqs(good); got != "5 6 8 9 10" {
			b.Errorf("set going as a retry should = %s", got)
		}
		recorded := `select seq from outbox_operator_action where operator = 'ann' and action = 'retry' and destination = 'd'
			and event_id = (select event_id from outbox_event e where e.seq = outbox_operator_action.seq)
			and reason = 'job %d: the fix is out' order by id`
		if got := b.seqs(fmt.Sprintf(recorded, j.ID)); got != "5 6 8 9 10" {
			b.Errorf("recorded = %s", got)
		}
		var before string
		b.must(b.db.QueryRowContext(b.Context(), "select before from outbox_operator_action where seq = 9").Scan(&before))
		var was map[string]any
		b.must(json.Unmarshal([]byte(before), &was))
		if was["status"] != "FAILED" || was["attempt_count"] != 3.0 || was["last_error_code"] != "HTTP_422" {
			b.Errorf("before = %s", before)
		}
	})
}

func TestJobDiscards(t *testing.T) {
	onBoth(t, func(b *box) {
		b.ledger()
		b.exec("update outbox_delivery set partition_key = 'k' where seq in (5, 9)") // they stand in their lane
		b.exec("delete from outbox_event where seq = 6")                             // its event is gone
		j := b.finish(b.startJob(ops.JobRequest{Kind: ops.JobDiscard, MaxEvents: 5}).ID)
		if j.State != ops.JobDone || j.Affected != 5 || j.Position != 9 {
			b.Errorf("job = %+v, want 5 done up to 9", j)
		}
		if got := b.withStatus("DISCARDED"); got != "5 6 7 8 9 11" {
			b.Errorf("discarded = %s", got)
		}
		if got := b.seqs("select seq from outbox_delivery where next_attempt_at is not null order by seq"); got != "5 9" {
			b.Errorf("due, so that their lane goes on = %s, want 5 9", got)
		}
	})
}

func TestJobReplays(t *testing.T) {
	onBoth(t, func(b *box) {
		b.ledger()
		j := b.finish(b.startJob(ops.JobRequest{Kind: ops.JobReplay}).ID)
		fresh, skipped := "14", int64(2+2+1+4) // FAILED, PENDING and PUBLISHING, the gap, and what is above the cursor
		if b.dialect == schema.SQLite {
			fresh, skipped = "14 15", skipped-1
		}
		want := "1 2 3 4 5 6 7 8 11 12 " + fresh
		if got := b.withStatus("PENDING"); got != want {
			b.Errorf("pending = %s, want %s", got, want)
		}
		if j.State != ops.JobDone || j.Affected != int64(len(strings.Fields(want))-1) || j.Skipped != skipped {
			b.Errorf("job = %+v, want %d affected and %d skipped", j, len(strings.Fields(want))-1, skipped)
		}
		recorded := b.seqs("select seq from outbox_operator_action where action = 'replay' order by seq")
		if recorded != strings.Replace(want, " 12", "", 1) {
			b.Errorf("recorded = %s", recorded)
		}
		if got := b.seqs("select seq from outbox_operator_action where seq is not null and before is null"); got != fresh {
			b.Errorf("recorded without a state before = %s, want %s", got, fresh)
		}
		if got := b.seqs(`select count(*) from outbox_delivery where status = 'PENDING' and seq <> 12
			and (receipt is not null or endpoint is null)`); got != "0" {
			b.Errorf("%s are not fit to be delivered again", got)
		}
	})
}

// Retention holds events while it looks whether they may go. A replay waits for what becomes of them: passed over, those that stay
// would never be delivered again.
func TestJobReplaysWhatRetentionHolds(t *testing.T) {
	b := newBox(t, schema.Postgres)
	b.ledger()
	tx, err := b.db.BeginTx(t.Context(), nil)
	b.must(err)
	defer tx.Rollback()
	if _, err := tx.ExecContext(t.Context(), "select from outbox_event where seq in (2, 3, 4) for update"); err != nil {
		t.Fatal(err)
	}
	if _, err := tx.ExecContext(t.Context(), "delete from outbox_event where seq = 4"); err != nil {
		t.Fatal(err)
	}
	j := b.startJob(ops.JobRequest{Kind: ops.JobReplay, Filter: ops.Filter{Statuses: []relay.Status{relay.StatusPublished}, ToSeq: 10}})
	released := make(chan error, 1)
	go func() { // until the job waits, or is done without
		for waits := ""; waits == "" && t.Context().Err() == nil; time.Sleep(5 * time.Millisecond) { // a poll
			waits = b.seqs("select 'waits' from pg_locks where not granted union all select 'done' from outbox_job where state = 'DONE'")
		}
		released <- tx.Commit()
	}()
	j = b.finish(j.ID)
	b.must(<-released)
	if j.State != ops.JobDone || j.Affected != 3 || j.Skipped != 1 {
		t.Errorf("job = %+v, want 3 replayed, and skipped what is gone", j)
	}
	if got := b.withStatus("PENDING"); got != "1 2 3 12" {
		t.Errorf("pending = %s", got)
	}
}

// Each part of a filter restricts.
func TestJobFilters(t *testing.T) {
	onBoth(t, func(b *box) {
		b.ledger()
		b.exec(`update outbox_event set aggregate_type = 'order', aggregate_id = 'o-' || seq, event_type = 'T' || (seq % 3)`)
		b.exec(`update outbox_delivery set endpoint = 'e' where seq in (5, 6)`)
		hour := map[schema.Dialect]string{schema.Postgres: "interval '1 hour'", schema.SQLite: "3600000000"}[b.dialect]
		b.exec(`update outbox_event set created_at = created_at - ` + hour + ` where seq <= 3`)
		for name, c := range map[string]struct {
			filter ops.Filter
			want   int64
		}{
			"topic":           {ops.Filter{Topics: relay.Topics{"oth*"}}, 0},
			"topics":          {ops.Filter{Topics: relay.Topics{"oth*", "ord*"}}, 9},
			"key":             {ops.Filter{Key: "k"}, 5},
			"aggregate type":  {ops.Filter{AggregateType: "order"}, 9},
			"aggregate":       {ops.Filter{AggregateType: "order", AggregateID: "o-4"}, 1},
			"another type":    {ops.Filter{AggregateType: "Order"}, 0},
			"event type":      {ops.Filter{EventType: "T0"}, 2},
			"error":           {ops.Filter{ErrorCode: "HTTP_422"}, 4},
			"endpoint":        {ops.Filter{Endpoint: "e"}, 2},
			"status":          {ops.Filter{Statuses: []relay.Status{relay.StatusDiscarded}}, 1},
			"numbers":         {ops.Filter{FromSeq: 2, ToSeq: 5}, 4},
			"since":           {ops.Filter{Since: time.Now().Add(-90 * time.Minute)}, 6},
			"until":           {ops.Filter{Until: time.Now().Add(-90 * time.Minute)}, 3},
			"since and until": {ops.Filter{Since: time.Now().Add(-3 * time.Hour), Until: time.Now().Add(-90 * time.Minute)}, 3},
		} {
			f := c.filter
			f.Destination = "d"
			if len(f.Statuses) == 0 {
				f.Statuses = []relay.Status{relay.StatusPublished, relay.StatusDiscarded, relay.StatusQuarantined}
			}
			got, err := b.Estimate(b.Context(), ops.JobRequest{Kind: ops.JobReplay, Filter: f})
			if err != nil || got != (ops.Count{N: c.want}) {
				b.Errorf("%s: got %+v, %v; want %d", name, got, err, c.want)
			}
		}
		if got := b.seqs("select count(*) from outbox_operator_action") + b.seqs("select count(*) from outbox_job"); got != "00" {
			b.Errorf("estimates have written something: %s", got)
		}
	})
}

// Estimates stop counting at their limits, and say so.
func TestJobEstimateIsBounded(t *testing.T) {
	onBoth(t, func(b *box) {
		const n, gone = 120_000, 10_000_000 // retention has taken a lot away
		if b.dialect == schema.Postgres {
			b.exec("alter sequence outbox_event_seq restart with 10000001")
		} else {
			b.exec("insert into sqlite_sequence (name, seq) values ('outbox_event', 10000000)")
		}
		b.events(n, "orders", time.Hour)
		b.cursor("d", gone+n)
		b.deliveries(n, "QUARANTINED", gone+1)
		for _, kind := range []ops.JobKind{ops.JobRetry, ops.JobReplay} {
			got, err := b.Estimate(b.Context(), ops.JobRequest{Kind: kind, Filter: ops.Filter{Destination: "d"}})
			if err != nil || got != (ops.Count{N: n, Estimated: true}) {
				b.Errorf("%s: got %+v, %v; want about %d", kind, got, err, n)
			}
		}
		got, err := b.Estimate(b.Context(), ops.JobRequest{Kind: ops.JobRetry, MaxEvents: 70, Filter: ops.Filter{Destination: "d"}})
		if err != nil || got != (ops.Count{N: 70}) {
			b.Errorf("got %+v, %v; want the limit", got, err)
		}
	})
}

func TestStartJobRefuses(t *testing.T) {
	onBoth(t, func(b *box) {
		b.ledger()
		refused := (*ops.RefusedError)(nil)
		_, err := b.StartJob(b.Context(), ops.JobRequest{Kind: "undo"}, ops.Action{})
		if !errors.As(err, &refused) || strings.Count(err.Error(), "\n") != 3 {
			b.Errorf("got %v, want four problems at once", err)
		}
		_, err = b.StartJob(b.Context(), ops.JobRequest{Kind: ops.JobRetry, Filter: ops.Filter{Destination: "nobody"}},
			ops.Action{By: "ann", Reason: "x"})
		if !errors.Is(err, ops.ErrUnknownDestination) {
			b.Errorf("got %v, want that the destination is not known", err)
		}
		_, err = b.StartJob(b.Context(), ops.JobRequest{Kind: ops.JobRetry, Filter: ops.Filter{Destination: "d", FromSeq: 21}},
			ops.Action{By: "ann", Reason: "x"})
		if !errors.As(err, &refused) {
			b.Errorf("got %v, want that there is nothing to do", err)
		}
		if got := b.seqs("select count(*) from outbox_job"); got != "0" {
			b.Errorf("%s jobs were written down", got)
		}
	})
}

// What operators do to a job goes by the version that they saw, and is recorded.
func TestSteerJob(t *testing.T) {
	onBoth(t, func(b *box) {
		b.ledger()
		j := b.startJob(ops.JobRequest{Kind: ops.JobRetry})
		by := ops.Action{By: "bob", Reason: "wait"}
		paused, err := b.PauseJob(b.Context(), j.ID, j.Version, by)
		if err != nil || paused.State != ops.JobPaused || paused.Version != 2 {
			b.Fatalf("paused = %+v, %v", paused, err)
		}
		conflict := (*ops.JobConflictError)(nil)
		if _, err := b.CancelJob(b.Context(), j.ID, j.Version, by); !errors.As(err, &conflict) || conflict.Now.State != ops.JobPaused {
			b.Errorf("cancel what has changed: got %v, want a conflict with what is PAUSED", err)
		}
		if refused := (*ops.RefusedError)(nil); true {
			if _, err := b.PauseJob(b.Context(), j.ID, 2, by); !errors.As(err, &refused) {
				b.Errorf("pause again: got %v, want a refusal", err)
			}
		}
		if _, err := b.PauseJob(b.Context(), 99, 1, by); !errors.Is(err, ops.ErrNotFound) {
			b.Errorf("pause nothing: got %v", err)
		}
		if _, err := b.Job(b.Context(), 99); !errors.Is(err, ops.ErrNotFound) {
			b.Errorf("look at nothing: got %v", err)
		}
		if got := b.finish(j.ID); got.Position != 0 || got.Affected != 0 {
			b.Errorf("a paused job went on: %+v", got)
		}
		resumed, err := b.ResumeJob(b.Context(), j.ID, 2, by)
		if err != nil || resumed.State != ops.JobRunning || resumed.Version != 3 {
			b.Fatalf("resumed = %+v, %v", resumed, err)
		}
		cancelled, err := b.CancelJob(b.Context(), j.ID, 3, by)
		if err != nil || cancelled.State != ops.JobCancelled || cancelled.FinishedAt == nil {
			b.Fatalf("cancelled = %+v, %v", cancelled, err)
		}
		if _, err := b.ResumeJob(b.Context(), j.ID, 4, by); err == nil {
			b.Error("what is cancelled was resumed")
		}
		if got := b.seqs("select action from outbox_operator_action order by id"); got != "job pause job resume job cancel job" {
			b.Errorf("recorded = %s", got)
		}
	})
}

// A job that can never go on ends, and says why; a job that waits says for what.
func TestJobTellsItsTrouble(t *testing.T) {
	onBoth(t, func(b *box) {
		b.ledger()
		j := b.startJob(ops.JobRequest{Kind: ops.JobRetry})
		b.exec("delete from outbox_cursor")
		got := b.finish(j.ID)
		if got.State != ops.JobFailed || !strings.Contains(got.LastError, "pillarbox status") || got.Version != 2 {
			b.Errorf("job = %+v, want it to fail for want of a destination", got)
		}
		b.cursor("d", 16, "orders")
		resumed, err := b.ResumeJob(b.Context(), j.ID, 2, ops.Action{By: "bob"})
		if err != nil || resumed.LastError != "" || resumed.FinishedAt != nil {
			b.Errorf("resumed = %+v, %v", resumed, err)
		}
		if got := b.finish(j.ID); got.State != ops.JobDone || got.Affected != 6 {
			b.Errorf("job = %+v, want it done", got)
		}
	})
}

// A job sets no more going than the relay takes up.
func TestJobHeedsWhatIsDue(t *testing.T) {
	onBoth(t, func(b *box) {
		b.events(3_000, "orders", time.Hour)
		b.cursor("d", 3_000)
		b.deliveries(3_000, "QUARANTINED", 1)
		j := b.startJob(ops.JobRequest{Kind: ops.JobRetry, RatePerSecond: 600})
		ctx, stop := context.WithTimeout(b.Context(), time.Minute)
		defer stop()
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			b.RunJobs(ctx, slog.New(slog.DiscardHandler))
		}()
		var err error
		for j.LastError == "" && ctx.Err() == nil {
			j, err = b.Job(ctx, j.ID)
			b.must(err)
			time.Sleep(5 * time.Millisecond) // a poll
		}
		if j.Affected != 1_200 || !strings.Contains(j.LastError, "1200 deliveries to d are due") {
			b.Errorf("job = %+v, want it to wait at 1,200", j)
		}
		b.exec("update outbox_delivery set status = 'PUBLISHED', next_attempt_at = null where status = 'PENDING' and seq <= 700")
		for j.Affected < 1_900 && ctx.Err() == nil {
			j, err = b.Job(ctx, j.ID)
			b.must(err)
			time.Sleep(5 * time.Millisecond) // a poll
		}
		if j.Affected != 1_900 {
			b.Errorf("job = %+v, want it to have gone on by as much as was taken up", j)
		}
		stop()
		<-ended
	})
}

func TestJobsPages(t *testing.T) {
	onBoth(t, func(b *box) {
		page, err := b.Jobs(b.Context(), ops.Page{})
		if text, _ := json.Marshal(page); err != nil || string(text) != `{"jobs":[]}` {
			b.Errorf("no jobs: got %s, %v", text, err)
		}
		b.ledger()
		for range 5 {
			b.startJob(ops.JobRequest{Kind: ops.JobRetry})
		}
		for _, oldest := range []bool{false, true} {
			var ids []int64
			p := ops.Page{Limit: 2, OldestFirst: oldest}
			for range 3 {
				page, err := b.Jobs(b.Context(), p)
				b.must(err)
				for _, j := range page.Jobs {
					ids = append(ids, j.ID)
				}
				p.After = page.Next
			}
			want := []int64{5, 4, 3, 2, 1}
			if oldest {
				slices.Reverse(want)
			}
			if !slices.Equal(ids, want) || p.After != "" {
				b.Errorf("oldest first %v: got %v and next %q, want %v", oldest, ids, p.After, want)
			}
		}
		if _, err := b.Jobs(b.Context(), ops.Page{After: "x"}); !errors.Is(err, ops.ErrBadPage) {
			b.Errorf("a strange page: got %v", err)
		}
	})
}
