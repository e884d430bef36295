package postgres_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pillarbox-dev/pillarbox/relay"
	"github.com/pillarbox-dev/pillarbox/store/postgres"
)

// TestShardOf: the database and the relay agree on the shard of an event, whatever its key, and all shards get their part.
func TestShardOf(t *testing.T) {
	conn := connect(t, database(t))
	keys := []string{"", "a", "case-42", "ключ", "鍵", "a\\b", "'", "\x01", strings.Repeat("long ", 2000)}
	for range 200 {
		keys = append(keys, fmt.Sprint("key-", rand.Int64()))
	}
	for _, shards := range []int{1, 2, 3, 7, 64} {
		seen := map[int]bool{}
		for i, key := range keys {
			seq := rand.Int64() >> (i % 63)
			got := value[int](t, conn, "select outbox_shard($1, $2, $3)", key, seq, shards)
			if want := relay.ShardOf(key, seq, shards); got != want {
				t.Fatalf("shard of %.20q, %d among %d = %d in the database, %d here", key, seq, shards, got, want)
			}
			seen[got] = true
		}
		if len(seen) < min(shards, 50) {
			t.Errorf("%d keys are in %d of %d shards", len(keys), len(seen), shards)
		}
	}
}

// TestShardsAreMadeOnce: of many relays that meet a new destination at once, one makes the cursors; and when they are configured
// differently, they agree with those of one of them, and the others are told.
func TestShardsAreMadeOnce(t *testing.T) {
	url := database(t)
	store := open(t, postgres.Config{URL: url, MaxConns: 20})
	conn := connect(t, url)
	for n := range 20 {
		name := fmt.Sprint("d", n)
		var told [2]error
		var working sync.WaitGroup
		for i, shards := range []int{2, 3} {
			for number := range shards {
				working.Go(func() {
					_, _, err := store.Acquire(t.Context(), relay.AcquireRequest{
						Destination: name, Shard: relay.Shard{Number: number, Of: shards}, Owner: "o", TTL: time.Hour, StartAtEnd: n%2 == 0,
					})
					if number == 0 {
						told[i] = err
					}
				})
			}
		}
		working.Wait()
		made := value[int](t, conn, "select count(*) from outbox_cursor where destination = $1", name)
		if claimed := value[int](t, conn, "select max(shards) from outbox_cursor where destination = $1", name); made != claimed {
			t.Errorf("%s has %d shards and says %d", name, made, claimed)
		}
		winner, loser := told[made-2], told[3-made]
		if winner != nil || !errors.Is(loser, relay.ErrShards) {
			t.Errorf("%s has %d shards; the relay of so many is told %v, the other one %v", name, made, winner, loser)
		}
	}
}

// TestShardsStartAtEnd: a transaction that is open while a destination is made is a gap of every shard.
func TestShardsStartAtEnd(t *testing.T) {
	url := database(t)
	store := open(t, postgres.Config{URL: url})
	conn, writer := connect(t, url), connect(t, url)
	const insert = "insert into outbox_event (topic_name, event_type) select 't', 'T' from generate_series(1, $1::integer)"
	exec(t, conn, insert, 5)
	exec(t, writer, "begin")
	exec(t, writer, insert, 4) // 6 to 9
	exec(t, conn, insert, 1)   // 10
	var leases []relay.Lease
	for number := range 3 {
		lease, ok, err := store.Acquire(t.Context(), relay.AcquireRequest{
			Destination: "d", Shard: relay.Shard{Number: number, Of: 3}, Owner: "o", TTL: time.Hour, StartAtEnd: true,
		})
		if err != nil || !ok {
			t.Fatalf("acquire: %v, %v", ok, err)
		}
		leases = append(leases, lease)
	}
	exec(t, writer, "commit")
	exec(t, conn, insert, 20) // 11 to 30
	seen := map[int64]int{}
	for _, l := range leases {
		check(t, "the position", l.Position, 10)
		check(t, "the gaps", fmt.Sprint(l.Gaps), "[{6 9}]")
		page := read(t, store, relay.Query{After: l.Position, Gaps: l.Gaps, Limit: 100, MaxBytes: 1 << 20, Shard: l.Shard})
		check(t, "the numbers seen", len(page.GapSeqs)+len(page.Seqs), 24)
		for _, e := range page.Events {
			seen[e.Seq]++
			check(t, "the shard", relay.ShardOf("", e.Seq, 3), l.Shard.Number)
		}
	}
	for seq := int64(6); seq <= 30; seq++ {
		if want := map[bool]int{true: 1}[seq != 10]; seen[seq] != want {
			t.Errorf("event %d was read by %d shards, want %d", seq, seen[seq], want)
		}
	}
}

// TestShardsInTheView: what has no row is as its own shard's cursor says.
func TestShardsInTheView(t *testing.T) {
	url := database(t)
	store := open(t, postgres.Config{URL: url})
	conn := connect(t, url)
	exec(t, conn, "insert into outbox_event (topic_name, partition_key, event_type) select 't', 'k' || i, 'T' from generate_series(1, 60) i")
	for number, s := range []relay.Settlement{{Position: 20, InFlightTo: 30, Gaps: []relay.Range{{First: 5, Last: 9}}}, {Position: 40, InFlightTo: 50}} {
		lease, _, err := store.Acquire(t.Context(), relay.AcquireRequest{
			Destination: "d", Shard: relay.Shard{Number: number, Of: 2}, Owner: fmt.Sprint("o", number), TTL: time.Hour,
		})
		if err != nil {
			t.Fatal(err)
		}
		for seq := int64(1); seq <= s.Position; seq++ {
			if lease.Shard.Holds(fmt.Sprint("k", seq), seq) && (seq < 5 || seq > 9 || number == 1) {
				s.Published = append(s.Published, relay.Receipt{Seq: seq})
			}
		}
		if _, err := store.Settle(t.Context(), lease.LeaseID, s); err != nil {
			t.Fatal(err)
		}
	}
	for seq := int64(1); seq <= 60; seq++ {
		want := "PENDING "
		inFlightTo, position := int64(30), int64(20)
		number := relay.ShardOf(fmt.Sprint("k", seq), seq, 2)
		if number == 1 {
			inFlightTo, position = 50, 40
		}
		switch {
		case seq <= position && (number == 1 || seq < 5 || seq > 9):
			want = "PUBLISHED "
		case seq > position && seq <= inFlightTo:
			want = fmt.Sprint("PUBLISHING o", number)
		}
		got := value[string](t, conn, "select string_agg(status || ' ' || coalesce(locked_by, ''), ', ') from outbox_status where seq = $1", seq)
		if got != want {
			t.Errorf("event %d of shard %d is %s, want %s", seq, number, got, want)
		}
	}
}
