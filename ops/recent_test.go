package ops_test

import (
	"strings"
	"testing"
	"time"

	"github.com/pillarbox-dev/pillarbox/ops"
	"github.com/pillarbox-dev/pillarbox/outbox/schema"
)

// attempted sets the attempts of the deliveries from the number first on.
func (b *box) attempted(first, last, attempts int) {
	b.Helper()
	b.exec(`update outbox_delivery set attempt_count = $1 where seq between $2 and $3`, attempts, first, last)
}

// publishedAfter sets how long the publishing of one event took.
func (b *box) publishedAfter(seq int64, took time.Duration) {
	b.Helper()
	statement := `update outbox_delivery set published_at = (select greatest(created_at, available_at) from outbox_event e
		where e.seq = outbox_delivery.seq) + make_interval(secs => $1) where seq = $2`
	by := any(took.Seconds())
	if b.dialect == schema.SQLite {
		statement = `update outbox_delivery set published_at = (select max(created_at, coalesce(available_at, 0)) from outbox_event e
			where e.seq = outbox_delivery.seq) + ?1 where seq = ?2`
		by = took.Microseconds()
	}
	b.exec(statement, by, seq)
}

func TestRecent(t *testing.T) {
	onBoth(t, func(b *box) {
		if got, err := b.Recent(t.Context(), "d"); err != nil || got != (ops.Recent{}) {
			t.Errorf("got %+v, %v of an unknown destination, want nothing", got, err)
		}
		b.events(104, "t", time.Hour)
		b.deliveries(100, "PUBLISHED", 1)
		b.deliveries(2, "QUARANTINED", 101)
		b.deliveries(2, "PENDING", 103)
		b.attempted(1, 100, 1)
		b.attempted(10, 10, 5)
		b.attempted(101, 102, 3)
		for seq := range int64(100) {
			b.publishedAfter(seq+1, time.Duration(seq+1)*time.Millisecond)
		}
		got, err := b.Recent(t.Context(), "d")
		b.must(err)
		if got.Deliveries != 104 || got.Published != 100 || got.Attempts != 110 || got.Failures != 10 {
			t.Errorf("got %+v, want 104 deliveries, 100 of them published, 110 attempts, 10 of them failures", got)
		}
		if got.FailureRate() != 10.0/110 {
			t.Errorf("got a failure rate of %v", got.FailureRate())
		}
		want := [3]ops.Seconds{ms(50), ms(95), ms(99)}
		if is := [3]ops.Seconds{got.P50, got.P95, got.P99}; is != want {
			t.Errorf("got %v, want %v", is, want)
		}
		if got.Since == nil || got.Until == nil || !got.Since.Before(*got.Until) {
			t.Errorf("got %v to %v", got.Since, got.Until)
		}
	})
}

// TestRecentLooksAtTheNewest: what happened long ago does not count, and an event that had to wait for its time was not late.
func TestRecentLooksAtTheNewest(t *testing.T) {
	onBoth(t, func(b *box) {
		b.events(ops.RecentRows+500, "t", time.Hour)
		b.deliveries(ops.RecentRows+500, "PUBLISHED", 1)
		b.attempted(1, 500, 9)
		b.attempted(501, ops.RecentRows+500, 1)
		available := `update outbox_event set available_at = created_at + interval '59 minutes'`
		if b.dialect == schema.SQLite {
			available = `update outbox_event set available_at = created_at + 59 * 60 * 1000000`
		}
		b.exec(available)
		got, err := b.Recent(t.Context(), "d")
		b.must(err)
		if got.Deliveries != ops.RecentRows || got.Attempts != ops.RecentRows || got.Failures != 0 {
			t.Errorf("got %+v, want the newest %d without a failure", got, ops.RecentRows)
		}
		if took := time.Duration(got.P99); took > 30*time.Minute {
			t.Errorf("got %v, as if the time before it was available counted", took)
		}
	})
}

func TestInbox(t *testing.T) {
	onBoth(t, func(b *box) {
		if got, err := b.Inbox(t.Context(), "billing"); err != nil || got.Handled.N != 0 || got.Last != nil {
			t.Errorf("got %+v, %v of an empty inbox", got, err)
		}
		hash := `''::bytea`
		if b.dialect == schema.SQLite {
			hash = `''`
		}
		for _, id := range []string{"a", "b", "c"} {
			b.exec(`insert into outbox_inbox (consumer, event_id, body_hash) values ('billing', $1, `+hash+`)`, id)
		}
		b.exec(`insert into outbox_inbox (consumer, event_id, body_hash) values ('other', 'a', ` + hash + `)`)
		got, err := b.Inbox(t.Context(), "billing")
		b.must(err)
		if got.Handled != (ops.Count{N: 3}) || got.Last == nil || time.Since(*got.Last).Abs() > time.Minute ||
			got.Duplicates != (ops.Count{}) {
			t.Errorf("got %+v, want 3, the last just now, and no duplicate", got)
		}
		b.exec(`insert into outbox_inbox_duplicate (consumer, event_id, times) values
			('billing', 'a', 3), ('billing', 'b', 1), ('other', 'a', 100)`)
		got, err = b.Inbox(t.Context(), "billing")
		b.must(err)
		if got.Duplicates != (ops.Count{N: 4}) {
			t.Errorf("got %+v, want 4 duplicates", got.Duplicates)
		}
		many := `insert into outbox_inbox_duplicate (consumer, event_id, times)
			select 'many', 'e' || i, 2 from generate_series(1, 10001) i`
		if b.dialect == schema.SQLite {
			many = `insert into outbox_inbox_duplicate (consumer, event_id, times)
				with recursive n (i) as (select 1 union all select i + 1 from n where i <= 10000) select 'many', 'e' || i, 2 from n`
		}
		b.exec(many)
		got, err = b.Inbox(t.Context(), "many")
		b.must(err)
		if got.Duplicates != (ops.Count{N: 20_002, AtLeast: true}) {
			t.Errorf("got %+v, want 20,002 duplicates and more", got.Duplicates)
		}
	})
}

// TestInboxOfAnotherVersion: a consumer's database without the counts is told as one without tables is.
func TestInboxOfAnotherVersion(t *testing.T) {
	onBoth(t, func(b *box) {
		b.exec(`drop table outbox_inbox_duplicate`)
		_, err := b.Inbox(t.Context(), "billing")
		if err == nil || !strings.Contains(err.Error(), "outbox_inbox_duplicate") {
			t.Errorf("got %v, want an error that names the table", err)
		}
	})
}

func ms(n int) ops.Seconds { return ops.Seconds(time.Duration(n) * time.Millisecond) }

func TestEndpoints(t *testing.T) {
	onBoth(t, func(b *box) {
		const add = `insert into outbox_endpoint (destination, endpoint, url) values ($1, $2, $3)`
		b.exec(add, "d", "acme", "https://user:word@acme.example/hook?key=secret")
		b.exec(add, "other", "beta", "https://beta.example")
		got, err := b.Endpoints(t.Context(), "d")
		b.must(err)
		want := ops.Endpoint{Endpoint: "acme", Address: "https://acme.example", Enabled: true}
		if len(got) != 1 || got[0] != want {
			t.Errorf("got %+v, want %+v", got, want)
		}
	})
}
