package ops_test

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pillarbox-dev/pillarbox/ops"
	"github.com/pillarbox-dev/pillarbox/outbox/schema"
	"github.com/pillarbox-dev/pillarbox/relay"
)

// sql chooses the text for the box's database.
func (b *box) sql(postgres, sqlite string) string {
	if b.dialect == schema.Postgres {
		return postgres
	}
	return sqlite
}

// wild fills an outbox with events and deliveries of every kind, at random: two destinations, one of which wants only some topics
// and has gaps; rows of every status below the cursor, some above; a leased window.
func (b *box) wild(chance *rand.Rand) {
	b.Helper()
	const n = 300
	var events, rows []string
	for i := range n {
		created := b.sql(fmt.Sprintf("clock_timestamp() - interval '%d seconds'", 3000-10*i),
			fmt.Sprintf("cast(unixepoch('subsec') * 1000000 as integer) - %d", (3000-10*i)*1_000_000))
		events = append(events, fmt.Sprintf(`('%s', '%s', '%s', '%d', '%s', %s)`, pick(chance, "orders.eu", "orders.us", "invoices"),
			pick(chance, "", "a", "b"), pick(chance, "Order", "Hub"), chance.IntN(5), pick(chance, "Created", "Gone"), created))
	}
	b.exec(`insert into outbox_event (topic_name, partition_key, aggregate_type, aggregate_id, event_type, created_at) values ` +
		strings.Join(events, ", "))
	for _, d := range []struct {
		name     string
		position int64
		topics   []string
	}{{"some", 200, []string{"orders.*"}}, {"all", 250, nil}} {
		b.cursor(d.name, d.position, d.topics...)
		for seq := int64(1); seq <= n; seq++ {
			if seq <= d.position && chance.IntN(10) > 0 || seq > d.position && chance.IntN(10) == 0 {
				status := pick(chance, "PUBLISHED", "PUBLISHED", "PUBLISHED", "DISCARDED", "FAILED", "QUARANTINED", "PENDING", "PUBLISHING")
				rows = append(rows, fmt.Sprintf(`('%s', %d, '%s', '%s', '%s')`, d.name, seq, status, pick(chance, "", "e1"),
					pick(chance, "HTTP_500", "DIAL")))
			}
		}
	}
	b.exec(`insert into outbox_delivery (destination, seq, status, endpoint, last_error_code) values ` + strings.Join(rows, ", "))
	if b.dialect == schema.Postgres {
		b.exec(`update outbox_cursor set gaps = '{[3,5),[60,90),[150,151),[190,1000)}' where destination = 'some'`)
	}
	b.exec(`update outbox_cursor set in_flight_to = 220, lease_owner = 'r1', updated_at = created.at, lease_expires_at = ` +
		b.sql("clock_timestamp() + interval '1 hour'", "cast((unixepoch('subsec') + 3600) * 1000000 as integer)") +
		` from (select max(created_at) as at from outbox_event) created where destination = 'some'`)
}

func pick(chance *rand.Rand, choices ...string) string { return choices[chance.IntN(len(choices))] }

// statusView reads outbox_status, which says the same in another way and without bounds.
func (b *box) statusView() (all []ops.Delivery) {
	b.Helper()
	rows, err := b.db.QueryContext(b.Context(), `select v.destination, v.seq, v.status, v.topic_name, v.partition_key, v.aggregate_type,
		v.aggregate_id, v.event_type, coalesce(v.endpoint, ''), coalesce(v.last_error_code, ''), coalesce(v.locked_by, ''), `+
		b.sql("(extract(epoch from e.created_at) * 1000000)::bigint", "e.created_at")+`
		from outbox_status v join outbox_event e on e.seq = v.seq`)
	b.must(err)
	defer rows.Close()
	for rows.Next() {
		var d ops.Delivery
		var created int64
		b.must(rows.Scan(&d.Destination, &d.Seq, &d.Status, &d.Topic, &d.Key, &d.AggregateType, &d.AggregateID, &d.EventType,
			&d.Endpoint, &d.ErrorCode, &d.LockedBy, &created))
		d.CreatedAt = time.UnixMicro(created)
		all = append(all, d)
	}
	b.must(rows.Err())
	return all
}

// fits is the filter, said once more.
func fits(f ops.Filter, d ops.Delivery) bool {
	same := func(want, is string) bool { return want == "" || want == is }
	return same(f.Destination, d.Destination) && (len(f.Statuses) == 0 || slices.Contains(f.Statuses, d.Status)) &&
		f.Topics.Match(d.Topic) && same(f.Key, d.Key) && same(f.AggregateType, d.AggregateType) &&
		same(f.AggregateID, d.AggregateID) && same(f.EventType, d.EventType) && same(f.ErrorCode, d.ErrorCode) &&
		same(f.Endpoint, d.Endpoint) && !d.CreatedAt.Before(f.Since) && (f.Until.IsZero() || d.CreatedAt.Before(f.Until)) &&
		d.Seq >= f.FromSeq && (f.ToSeq == 0 || d.Seq <= f.ToSeq)
}

// everything lists all pages.
func (b *box) everything(f ops.Filter, p ops.Page) (all []ops.Delivery) {
	b.Helper()
	for range 1000 {
		page, err := b.List(b.Context(), f, p)
		b.must(err)
		if len(page.Deliveries) > p.Limit {
			b.Fatalf("a page has %d entries, want at most %d", len(page.Deliveries), p.Limit)
		}
		all = append(all, page.Deliveries...)
		if page.Next == "" {
			return all
		}
		p.After = page.Next
	}
	b.Fatal("the list has no end")
	return nil
}

// TestListIsTheStatusView lists with filters at random, in both orders and in pages of any size, and compares with the view.
func TestListIsTheStatusView(t *testing.T) {
	onBoth(t, func(b *box) {
		seed := rand.Uint64()
		chance := rand.New(rand.NewPCG(seed, 0))
		b.wild(chance)
		view := b.statusView()
		full := 0
		for range 80 {
			f := randomFilter(chance)
			p := ops.Page{Limit: 20 + chance.IntN(80), OldestFirst: chance.IntN(2) == 0}
			if f.ToSeq != 0 {
				p.Limit = 1 + chance.IntN(7) // short lists in many pages
			}
			var want []string
			for _, d := range view {
				if fits(f, d) {
					want = append(want, listed(d))
				}
			}
			sortLines(want, p.OldestFirst)
			var got []string
			for _, d := range b.everything(f, p) {
				got = append(got, listed(d))
			}
			if !slices.Equal(got, want) {
				b.Fatalf("seed %d: %+v of %+v lists\n%s\nwant\n%s", seed, p, f, strings.Join(got, "\n"), strings.Join(want, "\n"))
			}
			full += len(want)
		}
		if full == 0 {
			b.Error("no filter let anything pass")
		}
	})
}

func listed(d ops.Delivery) string {
	return fmt.Sprintf("%09d %s %s %s %s %s", d.Seq, d.Destination, d.Status, d.Topic, d.Key, d.LockedBy)
}

func sortLines(lines []string, oldestFirst bool) {
	slices.SortFunc(lines, func(a, b string) int {
		bySeq := strings.Compare(a[:9], b[:9])
		if !oldestFirst {
			bySeq = -bySeq
		}
		return cmp.Or(bySeq, strings.Compare(a, b))
	})
}

func randomFilter(chance *rand.Rand) (f ops.Filter) {
	sometimes := func(to *string, choices ...string) {
		if chance.IntN(5) == 0 {
			*to = pick(chance, choices...)
		}
	}
	if chance.IntN(2) == 0 {
		f.Destination = pick(chance, "some", "all")
	}
	for range chance.IntN(4) {
		f.Statuses = append(f.Statuses, relay.Status(pick(chance, "PUBLISHED", "DISCARDED", "FAILED", "QUARANTINED", "PENDING", "PUBLISHING")))
	}
	slices.Sort(f.Statuses)
	f.Statuses = slices.Compact(f.Statuses)
	if chance.IntN(4) == 0 {
		f.Topics = relay.Topics{pick(chance, "orders.*", "*.us", "invoices", "nothing")}
	}
	sometimes(&f.Key, "a", "b")
	sometimes(&f.AggregateType, "Order", "Hub")
	sometimes(&f.AggregateID, "1", "2")
	sometimes(&f.EventType, "Created", "Gone")
	sometimes(&f.ErrorCode, "HTTP_500", "DIAL")
	sometimes(&f.Endpoint, "e1")
	if chance.IntN(4) == 0 {
		f.FromSeq = 1 + chance.Int64N(200)
		f.ToSeq = f.FromSeq + chance.Int64N(100)
	}
	if chance.IntN(4) == 0 {
		f.Since = time.Now().Add(-time.Duration(chance.IntN(3000)) * time.Second)
		f.Until = f.Since.Add(time.Duration(1+chance.IntN(1000)) * time.Second)
	}
	return f
}

// More gaps than one look takes in, each with one number that has turned visible.
func TestListOverManyGaps(t *testing.T) {
	b := newBox(t, schema.Postgres)
	b.events(1000, "t", 0)
	b.cursor("d", 1000)
	b.exec(`update outbox_cursor set gaps = (select range_agg(int8range(4 * i, 4 * i + 2)) from generate_series(1, 249) i)`)
	b.exec(`delete from outbox_event where seq % 4 = 1`)
	for _, oldestFirst := range []bool{false, true} {
		p := ops.Page{Limit: 7, OldestFirst: oldestFirst}
		got := b.everything(ops.Filter{Statuses: []relay.Status{"PENDING"}}, p)
		for i, d := range got {
			want := int64(996 - 4*i)
			if oldestFirst {
				want = int64(4 + 4*i)
			}
			if d.Seq != want {
				t.Fatalf("entry %d is %d, want %d", i, d.Seq, want)
			}
		}
		if len(got) != 249 {
			t.Errorf("listed %d, want 249", len(got))
		}
	}
}

// A span of time is found in a long log at once, though nothing is indexed by time.
func TestListFindsASpanOfTime(t *testing.T) {
	onBoth(t, func(b *box) {
		created := b.sql("'epoch'::timestamptz + i * interval '1 minute'", "i * 60000000")
		b.exec(`insert into outbox_event (topic_name, event_type, created_at) select 't', 'T', ` + created + ` from ` +
			b.sql("generate_series(1, 25000) i", "(with recursive n(i) as (select 1 union all select i + 1 from n where i < 25000) select i from n)"))
		b.cursor("d", 0)
		at := func(minute int64) time.Time { return time.Unix(60*minute, 0) }
		f := ops.Filter{Since: at(12_500), Until: at(12_510)}
		for _, oldestFirst := range []bool{false, true} {
			page, err := b.List(b.Context(), f, ops.Page{OldestFirst: oldestFirst})
			b.must(err)
			n := len(page.Deliveries)
			if n != 10 || page.Deliveries[0].Seq+page.Deliveries[n-1].Seq != 25_009 {
				b.Errorf("listed %d: %+v, want 12500 to 12509", n, page.Deliveries)
			}
		}
	})
}

// A page stops looking at a limit, and the next one goes on from there.
func TestListLooksAtABoundedNumber(t *testing.T) {
	onBoth(t, func(b *box) {
		b.events(25_000, "t", 0)
		b.cursor("d", 25_000)
		b.deliveries(1, "DISCARDED", 1)
		b.deliveries(24_999, "PUBLISHED", 2)
		f, p := ops.Filter{Statuses: []relay.Status{"DISCARDED"}}, ops.Page{}
		for range 2 {
			page, err := b.List(b.Context(), f, p)
			b.must(err)
			if len(page.Deliveries) != 0 || page.Next == "" {
				b.Fatalf("page = %+v, want an empty one that is not the last", page)
			}
			p.After = page.Next
		}
		page, err := b.List(b.Context(), f, p)
		b.must(err)
		if len(page.Deliveries) != 1 || page.Deliveries[0].Seq != 1 || page.Next != "" {
			b.Errorf("page = %+v, want the one that is discarded, at the end", page)
		}
	})
}

// A delivery whose event somebody deleted is shown all the same: it waits for an operator.
func TestListShowsWhatHasNoEvent(t *testing.T) {
	onBoth(t, func(b *box) {
		b.cursor("d", 10)
		b.deliveries(1, "QUARANTINED", 7)
		got := b.everything(ops.Filter{Destination: "d", Statuses: []relay.Status{"QUARANTINED"}}, ops.Page{Limit: 10})
		if len(got) != 1 || got[0].Seq != 7 || got[0].EventID != "" || got[0].Version == "" {
			b.Errorf("listed %+v, want the delivery of 7", got)
		}
	})
}

func TestListOfAnEmptyOutbox(t *testing.T) {
	onBoth(t, func(b *box) {
		b.events(3, "t", 0)
		page, err := b.List(b.Context(), ops.Filter{}, ops.Page{})
		if err != nil || page.Deliveries == nil || len(page.Deliveries) != 0 || page.Next != "" {
			b.Errorf("without a destination: %+v, %v, want an empty list", page, err)
		}
	})
}

func TestListRefuses(t *testing.T) {
	onBoth(t, func(b *box) {
		b.cursor("d", 0)
		b.events(3, "t", 0)
		now := time.Now()
		page, err := b.List(b.Context(), ops.Filter{}, ops.Page{Limit: 1})
		b.must(err)
		if page.Next == "" {
			b.Fatal("the first of three has no next page")
		}
		for name, tt := range map[string]struct {
			f    ops.Filter
			p    ops.Page
			want string
		}{
			"all of it at once": {ops.Filter{Statuses: []relay.Status{"pending"}, FromSeq: 3, ToSeq: 2, Since: now, Until: now,
				Topics: relay.Topics{""}}, ops.Page{Limit: 501}, "list deliveries: " +
				`there is no status "pending": use PENDING, PUBLISHING, PUBLISHED, FAILED, QUARANTINED or DISCARDED` + "\n" +
				"a pattern of topics is empty: leave it out, or use *\nnothing lies from number 3 to 2: turn them round\n" +
				"nothing lies from " + now.UTC().Format("2006-01-02T15:04:05.999999Z07:00") + " to before " +
				now.UTC().Format("2006-01-02T15:04:05.999999Z07:00") + ": turn them round\n" +
				"a page cannot have 501 entries: ask for 1 to 500, or 0 for 50"},
			"an unknown destination":   {ops.Filter{Destination: "e"}, ops.Page{}, "list deliveries: e: " + ops.ErrUnknownDestination.Error()},
			"a page of nothing":        {ops.Filter{}, ops.Page{After: "x"}, "list deliveries: " + ops.ErrBadPage.Error()},
			"a page of another filter": {ops.Filter{Key: "k"}, ops.Page{After: page.Next}, "list deliveries: " + ops.ErrBadPage.Error()},
			"a page of another order":  {ops.Filter{}, ops.Page{After: page.Next, OldestFirst: true}, "list deliveries: " + ops.ErrBadPage.Error()},
		} {
			if _, err := b.List(b.Context(), tt.f, tt.p); err == nil || err.Error() != tt.want {
				b.Errorf("%s: %v\nwant %s", name, err, tt.want)
			}
		}
		_, err = b.List(b.Context(), ops.Filter{FromSeq: -1}, ops.Page{})
		var refused *ops.RefusedError
		if !errors.As(err, &refused) {
			b.Errorf("%v is no RefusedError", err)
		}
	})
}
