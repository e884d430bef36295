package ops_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/pillarbox-dev/pillarbox/ops"
	"github.com/pillarbox-dev/pillarbox/outbox/schema"
	"github.com/pillarbox-dev/pillarbox/relay"
)

var ann = ops.Action{By: "ann", Reason: "more relays"}

// shards makes the destination d with a cursor for each position. Gaps are as PostgreSQL writes them.
func (b *box) shards(positions []int64, gaps ...string) {
	b.Helper()
	for n, position := range positions {
		gap := "{}"
		if n < len(gaps) {
			gap = gaps[n]
		}
		b.exec("insert into outbox_cursor (destination, shard, shards, position, in_flight_to, gaps) values ('d', $1, $2, $3, $3, $4)",
			n, len(positions), position, gap)
	}
}

// cursors returns what is in outbox_cursor, a line for each.
func (b *box) cursors() string {
	b.Helper()
	rows, err := b.db.QueryContext(b.Context(), `select shard || '/' || shards || ' ' || position || ' ' || in_flight_to || ' ' || gaps::text
		|| ' ' || coalesce(lease_owner, '-') || ' ' || coalesce(paused_reason, '-') || ' ' || crash_count
		from outbox_cursor where destination = 'd' order by shard`)
	b.must(err)
	defer rows.Close()
	var lines []string
	for rows.Next() {
		var line string
		b.must(rows.Scan(&line))
		lines = append(lines, line)
	}
	b.must(rows.Err())
	return strings.Join(lines, "\n")
}

// A gap stays one while nothing is visible in it, or what is visible has no row yet; all shards begin with the slowest.
func TestReshard(t *testing.T) {
	b := newBox(t, schema.Postgres)
	b.events(100, "a", 0)
	b.exec("delete from outbox_event where seq in (7, 8, 60)")
	b.shards([]int64{50, 80, 65}, "{[5,9),[20,22)}", "{[7,9),[20,22)}", "{[7,8),[60,61)}")
	b.exec("insert into outbox_delivery (destination, seq, status) values ('d', 5, 'PUBLISHED'), ('d', 21, 'FAILED'), ('other', 6, 'PUBLISHED')")
	b.exec(`update outbox_cursor set lease_owner = 'dead', lease_expires_at = 'epoch', lease_epoch = 7, in_flight_to = 90, crash_count = 5,
		settle_number = 12 where shard = 1`)
	b.exec("update outbox_cursor set paused_at = now(), paused_reason = 'storm', paused_by = 'guard' where shard = 2")

	r, err := b.Reshard(b.Context(), "d", 2, ann)
	b.must(err)
	if want := (ops.Resharding{From: 3, To: 2, Position: 50, Apart: 30}); r != want {
		b.Errorf("resharding = %+v, want %+v", r, want)
	}
	want := "0/2 50 90 {[6,9),[20,21)} dead storm 2\n1/2 50 90 {[6,9),[20,21)} dead storm 2"
	if got := b.cursors(); got != want {
		b.Errorf("cursors =\n%s\nwant\n%s", got, want)
	}
	var fenced bool
	b.must(b.db.QueryRowContext(b.Context(), "select bool_and(lease_epoch = 8 and settle_number = 0 and lease_expires_at <= clock_timestamp()) from outbox_cursor").Scan(&fenced))
	if !fenced {
		b.Error("the epoch has not risen: who had a lease could settle yet")
	}
	log, err := b.Log(b.Context(), ops.LogFilter{}, ops.Page{})
	b.must(err)
	if len(log.Entries) != 1 || log.Entries[0].Action != "reshard" || log.Entries[0].Operator != "ann" {
		b.Errorf("the operators' log = %+v", log.Entries)
	}
}

// After a clean stop nothing is in flight, however far apart the shards are.
func TestReshardAfterCleanStop(t *testing.T) {
	b := newBox(t, schema.Postgres)
	b.events(10, "a", 0)
	b.shards([]int64{10})
	for _, shards := range []int{64, 1, 3} {
		r, err := b.Reshard(b.Context(), "d", shards, ann)
		b.must(err)
		lines := strings.Split(b.cursors(), "\n")
		if r.To != shards || len(lines) != shards || lines[0] != fmt.Sprintf("0/%d 10 10 {} - - 0", shards) {
			b.Errorf("%d shards: %+v\n%s", shards, r, strings.Join(lines, "\n"))
		}
	}
}

func TestReshardRefused(t *testing.T) {
	b := newBox(t, schema.Postgres)
	b.shards([]int64{1, 2})
	refused := func(what, destination string, shards int, a ops.Action, want string) {
		b.Helper()
		before := b.cursors()
		if _, err := b.Reshard(b.Context(), destination, shards, a); err == nil || !strings.Contains(err.Error(), want) {
			b.Errorf("%s: %v, want %s", what, err, want)
		}
		if b.cursors() != before {
			b.Errorf("%s: the cursors have changed", what)
		}
	}
	refused("none", "d", 0, ann, "1 to 64 shards")
	refused("too many", "d", 65, ann, "1 to 64 shards")
	refused("as before", "d", 2, ann, "is 2 already")
	refused("without a reason", "d", 3, ops.Action{By: "ann"}, "say why")
	if _, err := b.Reshard(b.Context(), "nobody", 2, ann); !errors.Is(err, ops.ErrUnknownDestination) {
		b.Errorf("of nobody: %v", err)
	}
	b.exec("update outbox_cursor set lease_owner = 'r1', lease_expires_at = now() + interval '1 minute' where shard = 1")
	refused("while a relay works", "d", 3, ann, "the relay r1 works on it: stop the relays first")

	if _, err := newBox(t, schema.SQLite).Reshard(t.Context(), "d", 2, ann); err == nil || !strings.Contains(err.Error(), "one shard there") {
		t.Errorf("in SQLite: %v", err)
	}
}

// The status of a destination is that of all its shards.
func TestStatusOfShards(t *testing.T) {
	b := newBox(t, schema.Postgres)
	b.events(100, "a", 0)
	b.shards([]int64{50, 90, 80})
	b.exec("insert into outbox_delivery (destination, seq, status, published_at) select 'd', seq, 'PUBLISHED', now() from outbox_event where seq <= 90")
	b.exec("delete from outbox_delivery where seq in (51, 52, 53)")
	b.exec("update outbox_cursor set lease_owner = 'r' || shard, lease_expires_at = now() + interval '1 minute' where shard < 2")
	b.exec("update outbox_cursor set paused_at = now(), paused_reason = 'storm', paused_by = 'guard' where shard = 1")
	all := b.status().Destinations
	if len(all) != 1 {
		b.Fatalf("destinations = %+v", all)
	}
	d := all[0]
	if d.Position != 50 || d.Lag != 50 || d.Pending.N != 13 || d.LeaseOwner != "r0, r1" || !d.Paused || d.PausedReason != "storm" {
		b.Errorf("destination = %+v", d)
	}
	want := []ops.ShardStatus{
		{Shard: 0, Position: 50, Lag: 50, LeaseOwner: "r0"},
		{Shard: 1, Position: 90, Lag: 10, LeaseOwner: "r1", Paused: true},
		{Shard: 2, Position: 80, Lag: 20},
	}
	if !slices.Equal(d.Shards, want) {
		b.Errorf("shards = %+v, want %+v", d.Shards, want)
	}
	if !d.Unattended() || fmt.Sprint(d.Owners()) != "[r0 r1]" {
		b.Errorf("unattended %v, owners %q; want it so, and two", d.Unattended(), d.Owners())
	}
	b.exec("update outbox_cursor set lease_owner = 'r0', lease_expires_at = now() + interval '1 minute'")
	if d := b.status().Destinations[0]; d.Unattended() || d.LeaseOwner != "r0" {
		b.Errorf("with a relay on each: %+v", d)
	}
	if err := b.Resume(b.Context(), "d", ops.Action{By: "ann"}); err != nil {
		b.Errorf("resume when one shard is paused: %v", err)
	}
	if b.status().Destinations[0].Paused {
		b.Error("it is paused after all of it was resumed")
	}
}

// A list shows each event as the view does, as its own shard's cursor says.
func TestListOfShards(t *testing.T) {
	b := newBox(t, schema.Postgres)
	b.events(60, "a", 0)
	b.exec("update outbox_event set partition_key = 'k' || seq")
	b.exec("delete from outbox_event where seq = 8")
	b.shards([]int64{20, 40}, "{[5,9)}", "{[7,9),[25,26)}")
	b.exec("update outbox_cursor set lease_owner = 'r', lease_expires_at = now() + interval '1 minute', in_flight_to = position + 10")
	b.exec(`insert into outbox_delivery (destination, seq, status, published_at)
		select 'd', e.seq, 'PUBLISHED', now() from outbox_event e
		  join outbox_cursor c on c.shard = outbox_shard(e.partition_key, e.seq, c.shards)
		 where e.seq <= c.position and not c.gaps @> e.seq`)
	view := func(where string) string {
		return b.seqs("select seq from outbox_status where " + where + " order by seq")
	}
	for _, test := range []struct {
		statuses []relay.Status
		where    string
	}{
		{nil, "true"},
		{[]relay.Status{relay.StatusPending}, "status = 'PENDING'"},
		{[]relay.Status{relay.StatusPublishing}, "status = 'PUBLISHING'"},
		{[]relay.Status{relay.StatusPublishing, relay.StatusPending}, "status in ('PENDING', 'PUBLISHING')"},
	} {
		want := view(test.where)
		for _, oldestFirst := range []bool{true, false} {
			var got []int64
			for page := (ops.Page{OldestFirst: oldestFirst, Limit: 7}); ; {
				list, err := b.List(b.Context(), ops.Filter{Destination: "d", Statuses: test.statuses}, page)
				b.must(err)
				for _, d := range list.Deliveries {
					got = append(got, d.Seq)
				}
				if page.After = list.Next; page.After == "" {
					break
				}
			}
			if !oldestFirst {
				slices.Reverse(got)
			}
			if text := strings.Trim(fmt.Sprint(got), "[]"); text != want || want == "" {
				b.Errorf("%v, oldest first %v: %s, want %s", test.statuses, oldestFirst, text, want)
			}
		}
	}
	for _, seq := range []int64{5, 6, 7, 25, 30, 60} {
		detail, err := b.Show(b.Context(), ops.EventRef{Seq: seq})
		b.must(err)
		want := view(fmt.Sprintf("seq = %d", seq))
		if len(detail.Deliveries) != min(len(want), 1) {
			b.Errorf("event %d has %+v, in the view %q", seq, detail.Deliveries, want)
			continue
		}
		for _, d := range detail.Deliveries {
			if view(fmt.Sprintf("seq = %d and status = '%s'", seq, d.Status)) == "" {
				b.Errorf("event %d is %s, otherwise in the view", seq, d.Status)
			}
		}
	}
}
