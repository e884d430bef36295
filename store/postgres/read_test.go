package postgres_test

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pillarbox-dev/pillarbox/relay"
	"github.com/pillarbox-dev/pillarbox/store/postgres"
)

func read(t testing.TB, s *postgres.Store, q relay.Query) relay.Page {
	t.Helper()
	page, err := s.Read(t.Context(), q)
	if err != nil {
		t.Fatalf("Read(%+v): %v", q, err)
	}
	return page
}

// TestPagesOfLargeEvents reads events far larger than what fits. Pages must keep to MaxBytes, each event must come once, and
// what comes beyond MaxBytes from the server must soon be no more than little.
func TestPagesOfLargeEvents(t *testing.T) {
	url := database(t)
	store := open(t, postgres.Config{URL: url})
	conn := connect(t, url)
	const events, size, most = 150, 1 << 20, 5 << 20
	exec(t, conn, "alter table outbox_event alter payload_bytes set storage external") // or repeated bytes would be compressed
	exec(t, conn, `insert into outbox_event (topic_name, event_type, payload_bytes)
		select 't', 'T', convert_to(repeat('x', $1::integer), 'UTF8') from generate_series(1, $2::integer)`, size, events)
	backend := func() int {
		return value[int](t, conn, "select coalesce(max(pid), 0) from pg_stat_activity where application_name = 'pillarbox'")
	}
	before, replaced := backend(), 0
	seen := int64(0)
	for seen < events {
		page := read(t, store, relay.Query{After: seen, Limit: 5000, MaxBytes: most})
		bytes := 0
		for _, e := range page.Events {
			seen++
			check(t, "the number", e.Seq, seen)
			check(t, "the size", len(e.Payload), size)
			bytes += e.Size()
		}
		if bytes > most || len(page.Events) == 0 || !page.Full && seen < events {
			t.Fatalf("a page of %d events, %d bytes, full %v, want some in at most %d bytes, and full",
				len(page.Events), bytes, page.Full, most)
		}
		if pid := backend(); pid != before {
			before = pid
			replaced++
		}
	}
	if replaced == 0 || replaced > 3 {
		t.Errorf("the connection was broken off %d times, want it once or twice, before the size was known", replaced)
	}
}

// TestChunksKeepEventsApart reads texts and payloads of many lengths, so that they lie next to each other in every way.
func TestChunksKeepEventsApart(t *testing.T) {
	url := database(t)
	store := open(t, postgres.Config{URL: url})
	exec(t, connect(t, url), `
		insert into outbox_event (event_id, topic_name, partition_key, aggregate_id, event_type, payload, headers)
		select 'id-' || i || repeat('i', i * 37 % 300), 'topic-' || i % 1500, repeat('k', i * 7919 % 20000), 'a' || i, 'T',
		       to_json(i || repeat('p', i * 104729 % 60000)), json_build_object('n', i::text)
		  from generate_series(1, 3000) i`)
	page := read(t, store, relay.Query{Limit: 5000, MaxBytes: 1 << 30})
	rest := read(t, store, relay.Query{After: page.Seqs[len(page.Seqs)-1], Limit: 5000, MaxBytes: 1 << 30})
	page.Events = slices.Concat(page.Events, rest.Events)
	check(t, "events", len(page.Events), 3000)
	for i, e := range page.Events {
		n := i + 1
		id, key := fmt.Sprint("id-", n)+strings.Repeat("i", n*37%300), strings.Repeat("k", n*7919%20000)
		payload := fmt.Sprintf(`"%d%s"`, n, strings.Repeat("p", n*104729%60000))
		headers := fmt.Sprintf(`{"n" : "%d"}`, n)
		if e.ID != id || e.Key != key || e.Topic != fmt.Sprint("topic-", n%1500) || e.AggregateID != fmt.Sprint("a", n) ||
			string(e.Payload) != payload || string(e.Headers) != headers {
			t.Fatalf("event %d came as %.200v", n, *e)
		}
		if cap(e.Payload) != len(e.Payload) {
			t.Fatalf("event %d: appending to its payload would write into the next one", n)
		}
	}
}

// TestTimesWithoutEnd: infinity, and what a time.Duration cannot hold, must not keep the log from being read.
func TestTimesWithoutEnd(t *testing.T) {
	url := database(t)
	store := open(t, postgres.Config{URL: url})
	conn := connect(t, url)
	for _, test := range []struct {
		available string
		want      func(time.Duration) bool
	}{
		{"infinity", func(d time.Duration) bool { return d == math.MaxInt64 }},
		{"-infinity", func(d time.Duration) bool { return d <= 0 }},
		{"290000-01-01", func(d time.Duration) bool { return d == math.MaxInt64 }},
		{"0001-01-01 BC", func(d time.Duration) bool { return d <= 0 }},
		{"tomorrow", func(d time.Duration) bool { return d > 0 && d <= 24*time.Hour }},
	} {
		exec(t, conn, "truncate outbox_event restart identity")
		exec(t, conn, `insert into outbox_event (topic_name, event_type, available_at, created_at)
			values ('t', 'T', $1::text::timestamptz, $1::text::timestamptz)`, test.available)
		page := read(t, store, relay.Query{Limit: 10, MaxBytes: 1000})
		if len(page.Events) != 1 || !test.want(page.Events[0].AvailableIn) {
			t.Errorf("%s: got %+v, which does not fit", test.available, page.Events)
		}
		_ = page.Now.Sub(page.Events[0].CreatedAt) // must not panic
	}
	// A row that will never be due is not due, and what is due since ever is.
	lease := acquire(t, store, "d")
	exec(t, conn, `insert into outbox_delivery (destination, seq, status, endpoint, next_attempt_at)
		select 'd', seq, 'FAILED', '', 'infinity' from outbox_event`)
	due := relay.Claim{Due: true, Limit: 10, MaxBytes: 1000}
	claimed, err := store.Claim(t.Context(), lease, due)
	if err != nil || len(claimed.Deliveries) != 0 || claimed.NextDue < 24*time.Hour {
		t.Errorf("claim of what is never due: %+v, %v", claimed, err)
	}
	found, err := store.Recover(t.Context(), lease, 10)
	if err != nil || found.NextDue < 24*time.Hour {
		t.Errorf("recover what is never due: %+v, %v", found, err)
	}
	exec(t, conn, "update outbox_delivery set next_attempt_at = '-infinity'")
	if found, err := store.Recover(t.Context(), lease, 10); err != nil || found.NextDue != 0 {
		t.Errorf("recover what was always due: %+v, %v", found, err)
	}
	if claimed, err := store.Claim(t.Context(), lease, due); err != nil || len(claimed.Deliveries) != 1 {
		t.Errorf("claim of what was always due: %+v, %v", claimed, err)
	}
}
