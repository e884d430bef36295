package postgres_test

import (
	"testing"
	"time"

	"github.com/pillarbox-dev/pillarbox/relay"
	"github.com/pillarbox-dev/pillarbox/store/postgres"
)

// TestStartAtEndKeepsWhatIsOpen: an event whose transaction is open while a destination is made is committed after it, so it
// is not what the log already held.
func TestStartAtEndKeepsWhatIsOpen(t *testing.T) {
	url := database(t)
	store := open(t, postgres.Config{URL: url})
	conn, writer := connect(t, url), connect(t, url)
	const insert = "insert into outbox_event (topic_name, event_type) select 't', 'T' from generate_series(1, $1::integer)"
	exec(t, conn, insert, 5)
	exec(t, writer, "begin")
	exec(t, writer, insert, 2) // 6 and 7
	exec(t, conn, insert, 2)   // 8 and 9
	exec(t, conn, "begin")
	exec(t, conn, insert, 1) // 10
	exec(t, conn, "rollback")
	atEnd := relay.AcquireRequest{Destination: "d", Owner: "o", TTL: time.Hour, StartAtEnd: true}
	lease, ok, err := store.Acquire(t.Context(), atEnd)
	if err != nil || !ok {
		t.Fatalf("acquire: %v, %v", ok, err)
	}
	check(t, "the position", lease.Position, 10)
	check(t, "in flight", lease.InFlightTo, 10)
	check(t, "gaps", len(lease.Gaps), 2)
	exec(t, writer, "commit")
	exec(t, conn, insert, 1) // 11
	page := read(t, store, relay.Query{After: lease.Position, Gaps: lease.Gaps, Limit: 100, MaxBytes: 1 << 20})
	got := []int64{}
	for _, e := range page.Events {
		got = append(got, e.Seq)
	}
	if len(got) != 3 || got[0] != 6 || got[1] != 7 || got[2] != 11 {
		t.Errorf("read %v, want 6, 7 and 11", got)
	}
}

// TestManyGaps: a cursor holds as many gaps as the relay keeps.
func TestManyGaps(t *testing.T) {
	url := database(t)
	store := open(t, postgres.Config{URL: url})
	lease := acquire(t, store, "d")
	gaps := make([]relay.Range, relay.MaxGaps)
	for i := range gaps {
		gaps[i] = relay.Range{First: int64(i)*1000 + 1<<60, Last: int64(i)*1000 + 1<<60 + int64(i%3)}
	}
	if _, err := store.Settle(t.Context(), lease, relay.Settlement{Position: 1 << 61, Gaps: gaps}); err != nil {
		t.Fatal(err)
	}
	if err := store.Release(t.Context(), lease); err != nil {
		t.Fatal(err)
	}
	again, ok, err := store.Acquire(t.Context(), relay.AcquireRequest{Destination: "d", Owner: "o2", TTL: time.Hour})
	if err != nil || !ok || again.Unclean {
		t.Fatalf("acquire: %v, %v, unclean %v", ok, err, again.Unclean)
	}
	check(t, "gaps", len(again.Gaps), len(gaps))
	for i := range again.Gaps {
		check(t, "a gap", again.Gaps[i], gaps[i])
	}
}
