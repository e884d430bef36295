package postgres_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/pillarbox-dev/pillarbox/relay"
	"github.com/pillarbox-dev/pillarbox/store/postgres"
)

// TestClaimsLookBehindWhatWaits puts 2,000 rows that wait for the head of their lane before those that are eligible: more
// than one statement looks at. The eligible ones must be found, in order, and a lane may lie on both sides of where one
// statement ends and the next begins.
func TestClaimsLookBehindWhatWaits(t *testing.T) {
	url := database(t)
	store := open(t, postgres.Config{URL: url})
	lease := acquire(t, store, "d")
	conn := connect(t, url)
	exec(t, conn, "insert into outbox_event (topic_name, event_type) select 't', 'T' from generate_series(1, 3000)")
	endpoint := "e"
	for _, test := range []struct {
		name    string
		claim   relay.Claim
		due     string // next_attempt_at of the rows
		headDue string // of the heads that all wait for
	}{
		{"due", relay.Claim{Due: true}, "now() - interval '1 hour' + i * interval '1 second'", "now() + interval '1 hour'"},
		{"endpoint", relay.Claim{Endpoint: &endpoint}, "null::timestamptz", "now() + interval '1 hour'"},
	} {
		t.Run(test.name, func(t *testing.T) {
			exec(t, conn, "truncate outbox_delivery")
			// 1 to 10 are heads; 11 to 2010 wait for them, but for each hundredth, which is of the lane "free"; 2011 to 2020 are
			// eligible without a lane.
			exec(t, conn, `insert into outbox_delivery (destination, seq, status, endpoint, partition_key, next_attempt_at)
				select 'd', i, 'FAILED', 'e', 'k' || i, `+test.headDue+` from generate_series(1, 10) i
				union all
				select 'd', i, 'PENDING', 'e', case when i % 100 = 0 then 'free' else 'k' || 1 + i % 10 end, `+test.due+`
				  from generate_series(11, 2010) i
				union all
				select 'd', i, 'PENDING', 'e', null, `+test.due+` from generate_series(2011, 2020) i`)
			var want []int64
			for seq := int64(100); seq <= 2000; seq += 100 {
				want = append(want, seq)
			}
			for seq := int64(2011); seq <= 2020; seq++ {
				want = append(want, seq)
			}
			c := test.claim
			c.Limit, c.MaxBytes = 100, 1<<20
			claimed, err := store.Claim(t.Context(), lease, c)
			if err != nil {
				t.Fatal(err)
			}
			var got []int64
			for _, d := range claimed.Deliveries {
				got = append(got, d.Event.Seq)
			}
			if !slices.Equal(got, want) || claimed.More {
				t.Errorf("claimed %v, more %v, want %v and no more", got, claimed.More, want)
			}
			again, err := store.Claim(t.Context(), lease, c)
			if err != nil || len(again.Deliveries) != 0 || again.More {
				t.Errorf("claimed again: %+v, %v, want nothing", again, err)
			}
		})
	}
}

// TestClaimBoundsAcrossStatements: Limit and MaxBytes count what all statements of a claim have taken.
func TestClaimBoundsAcrossStatements(t *testing.T) {
	url := database(t)
	store := open(t, postgres.Config{URL: url})
	lease := acquire(t, store, "d")
	conn := connect(t, url)
	exec(t, conn, `insert into outbox_event (event_id, topic_name, event_type)
		select 'id-' || 1000 + i, 't', 'T' from generate_series(1, 3000) i`)
	size := read(t, store, relay.Query{Limit: 1, MaxBytes: 1}).Events[0].Size()
	for _, test := range []struct {
		limit, maxBytes, want int
	}{
		{7, 1 << 20, 7},
		{100, 12*size + size/2, 12},
		{100, 1, 1},
		{20, 1 << 20, 20},
		{21, 1 << 20, 20},
	} {
		t.Run(fmt.Sprintf("%d in %d bytes", test.limit, test.maxBytes), func(t *testing.T) {
			exec(t, conn, "truncate outbox_delivery")
			exec(t, conn, `insert into outbox_delivery (destination, seq, status, endpoint, partition_key, next_attempt_at)
				select 'd', i, 'PENDING', '', case when i % 100 <> 0 then 'k' end,
				       case when i > 1 then now() - interval '1 hour' + i * interval '1 millisecond' end
				  from generate_series(1, 2000) i`)
			claimed, err := store.Claim(t.Context(), lease, relay.Claim{Due: true, Limit: test.limit, MaxBytes: test.maxBytes})
			if err != nil {
				t.Fatal(err)
			}
			check(t, "claimed", len(claimed.Deliveries), test.want)
			check(t, "more", claimed.More, test.want < 20 || test.limit == 20)
			taken := value[int](t, conn, "select count(*) from outbox_delivery where status = 'PUBLISHING'")
			check(t, "PUBLISHING rows", taken, test.want)
		})
	}
}

// TestClaimQuarantinesWhatIsGone: a row whose event somebody deleted from the log cannot be delivered, and is in nobody's way.
func TestClaimQuarantinesWhatIsGone(t *testing.T) {
	url := database(t)
	store := open(t, postgres.Config{URL: url})
	lease := acquire(t, store, "d")
	conn := connect(t, url)
	exec(t, conn, "insert into outbox_event (topic_name, event_type) select 't', 'T' from generate_series(1, 3)")
	exec(t, conn, `insert into outbox_delivery (destination, seq, status, endpoint, partition_key)
		select 'd', i, 'PENDING', '', 'k' from generate_series(1, 3) i`)
	exec(t, conn, "delete from outbox_event where seq = 1")
	claimed, err := store.Claim(t.Context(), lease, relay.Claim{Lane: &relay.LaneID{Key: "k"}, Limit: 10, MaxBytes: 1000})
	if err != nil || len(claimed.Deliveries) != 3 || claimed.More || claimed.Blocked {
		t.Fatalf("got %+v, %v, want the two that are there, and the one that is not", claimed, err)
	}
	check(t, "the one that is not there", claimed.Deliveries[2].Status, relay.StatusDiscarded)
	check(t, "its status", value[string](t, conn, "select status || ' ' || last_error_code from outbox_delivery where seq = 1"),
		"QUARANTINED EVENT_MISSING")
}

// TestClaimQuarantinesItsOwn: of many rows whose events are gone, a claim takes those that it came for. Their lanes wait for them.
func TestClaimQuarantinesItsOwn(t *testing.T) {
	url := database(t)
	store := open(t, postgres.Config{URL: url})
	lease := acquire(t, store, "d")
	conn := connect(t, url)
	exec(t, conn, `insert into outbox_delivery (destination, seq, status, endpoint, partition_key, next_attempt_at)
		select 'd', i, 'PENDING', 'e' || i % 2, 'k' || i, case when i > 250 then now() - interval '1 minute' end
		  from generate_series(1, 500) i`)
	endpoint := "e0"
	for _, test := range []struct {
		name  string
		claim relay.Claim
		want  []int64
	}{
		{"a lane", relay.Claim{Lane: &relay.LaneID{Endpoint: "e1", Key: "k249"}, Limit: 100}, []int64{249}},
		{"an endpoint", relay.Claim{Endpoint: &endpoint, After: 244, Limit: 100}, []int64{246, 248, 250}},
		{"due", relay.Claim{Due: true, Limit: 2}, []int64{251, 252}},
	} {
		test.claim.MaxBytes = 1 << 20
		claimed, err := store.Claim(t.Context(), lease, test.claim)
		if err != nil {
			t.Fatal(err)
		}
		var got []int64
		for _, d := range claimed.Deliveries {
			got = append(got, d.Event.Seq)
		}
		slices.Sort(got)
		check(t, test.name, fmt.Sprint(got), fmt.Sprint(test.want))
	}
	check(t, "quarantined", value[int](t, conn, "select count(*) from outbox_delivery where status = 'QUARANTINED'"), 6)
}
