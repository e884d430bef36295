package ops_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/pillarbox-dev/pillarbox/ops"
)

// lines adds n lines to the operators' log: of ann and bob by turns, each third one of a kind of its own.
func (b *box) lines(n int) {
	b.Helper()
	numbers := b.sql(fmt.Sprintf("from generate_series(1, %d) i", n),
		fmt.Sprintf("from (with recursive n(i) as (select 1 union all select i + 1 from n where i < %d) select i from n)", n))
	b.exec(`insert into outbox_operator_action (operator, action, destination, seq, after)
		select case i % 2 when 0 then 'ann' else 'bob' end, case i % 3 when 0 then 'retry' else 'pause' end, 'd' || (i % 4),
		       case when i % 5 = 0 then i % 10 + 1 end, '{"i":1}' ` + numbers)
}

func (b *box) wholeLog(f ops.LogFilter, p ops.Page) (ids []int64, pages int) {
	b.Helper()
	for range 1000 {
		page, err := b.Log(b.Context(), f, p)
		b.must(err)
		pages++
		for _, e := range page.Entries {
			ids = append(ids, e.ID)
		}
		if page.Next == "" {
			return ids, pages
		}
		p.After = page.Next
	}
	b.Fatal("the log has no end")
	return nil, 0
}

func TestLog(t *testing.T) {
	onBoth(t, func(b *box) {
		if page, err := b.Log(b.Context(), ops.LogFilter{}, ops.Page{}); err != nil || page.Entries == nil || len(page.Entries) != 0 || page.Next != "" {
			b.Errorf("the empty log is %+v, %v", page, err)
		}
		const n = 200
		b.lines(n)
		for _, f := range []ops.LogFilter{
			{}, {Operator: "ann"}, {Action: "retry"}, {Destination: "d1"}, {Operator: "bob", Action: "pause", Destination: "d3"},
			{Seq: 1}, {Seq: 6, Action: "retry"}, {Seq: 4}, {Operator: "cem"},
		} {
			for _, p := range []ops.Page{{}, {Limit: 1}, {Limit: 7, OldestFirst: true}} {
				var want []int64
				for i := range int64(n) {
					i++
					who, what, seq := "bob", "pause", int64(0)
					if i%2 == 0 {
						who = "ann"
					}
					if i%3 == 0 {
						what = "retry"
					}
					if i%5 == 0 {
						seq = i%10 + 1
					}
					if (f.Operator == "" || f.Operator == who) && (f.Action == "" || f.Action == what) &&
						(f.Destination == "" || f.Destination == fmt.Sprintf("d%d", i%4)) && (f.Seq == 0 || f.Seq == seq) {
						want = append(want, i)
					}
				}
				if !p.OldestFirst {
					slices.Reverse(want)
				}
				if got, _ := b.wholeLog(f, p); !slices.Equal(got, want) {
					b.Errorf("%+v, %+v: %v, want %v", f, p, got, want)
				}
			}
		}
	})
}

// What one page looks at is bounded, and nothing is left out over it.
func TestLogLooksAtABoundedNumber(t *testing.T) {
	onBoth(t, func(b *box) {
		b.lines(50_000)
		b.exec(`update outbox_operator_action set operator = 'cem' where id in (3, 25000, 49990)`)
		for _, p := range []ops.Page{{}, {OldestFirst: true}} {
			got, pages := b.wholeLog(ops.LogFilter{Operator: "cem"}, p)
			slices.Sort(got)
			if !slices.Equal(got, []int64{3, 25_000, 49_990}) || pages != 3 {
				b.Errorf("found %v in %d pages, want 3, 25000, 49990 in 3", got, pages)
			}
		}
	})
}

func TestLogRefuses(t *testing.T) {
	onBoth(t, func(b *box) {
		b.lines(3)
		page, err := b.Log(b.Context(), ops.LogFilter{}, ops.Page{Limit: 1})
		b.must(err)
		list, err := b.List(b.Context(), ops.Filter{}, ops.Page{})
		b.must(err)
		if list.Next != "" {
			b.Error("the empty list goes on")
		}
		for _, tt := range []struct {
			f    ops.LogFilter
			p    ops.Page
			want string
		}{
			{ops.LogFilter{Seq: -1}, ops.Page{Limit: -1}, "read the operators' log: the numbers of events begin with 1, and -1 is none\n" +
				"a page cannot have -1 entries: ask for 1 to 500, or 0 for 50"},
			{ops.LogFilter{Operator: "ann"}, ops.Page{After: page.Next}, "read the operators' log: " + ops.ErrBadPage.Error()},
			{ops.LogFilter{}, ops.Page{After: "%"}, "read the operators' log: " + ops.ErrBadPage.Error()},
		} {
			if _, err := b.Log(b.Context(), tt.f, tt.p); err == nil || err.Error() != tt.want {
				b.Errorf("%+v: %v, want %s", tt, err, tt.want)
			}
		}
		if _, err := b.List(b.Context(), ops.Filter{}, ops.Page{After: page.Next}); err == nil {
			b.Error("a list of deliveries took a page of the log")
		}
	})
}

// docs/operations.md tells the owner how to cut the operators' log: it does what it says.
func TestPruneOfTheGuide(t *testing.T) {
	guide, err := os.ReadFile("../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	statement := func(begin string) string {
		_, rest, found := strings.Cut(string(guide), "```sql\n"+begin)
		text, _, closed := strings.Cut(rest, "```")
		if !found || !closed {
			t.Fatalf("docs/operations.md has no statement that begins with %q", begin)
		}
		return begin + text
	}
	onBoth(t, func(b *box) {
		b.lines(12_010)
		past := b.sql("clock_timestamp() - interval '401 days'", "cast(unixepoch('now', '-401 days') as integer) * 1000000")
		b.exec("update outbox_operator_action set at = " + past + " where id <= 12000")
		left := func() (n int) {
			b.must(b.db.QueryRowContext(b.Context(), "select count(*) from outbox_operator_action").Scan(&n))
			return n
		}
		prune := statement(b.sql("-- PostgreSQL", "-- SQLite"))
		for _, want := range []int{2_010, 10, 10} {
			if b.exec(prune); left() != want {
				b.Errorf("%d lines are left, want %d", left(), want)
			}
		}
		b.exec("update outbox_operator_action set seq = 4711 where id = 12001")
		b.exec(statement("update outbox_operator_action"))
		ids, _ := b.wholeLog(ops.LogFilter{Seq: 4711}, ops.Page{})
		page, err := b.Log(b.Context(), ops.LogFilter{Seq: 4711}, ops.Page{})
		b.must(err)
		if !slices.Equal(ids, []int64{12_001}) || page.Entries[0].After != nil || page.Entries[0].Before != nil {
			b.Errorf("lines of the event: %+v, want one, empty", page.Entries)
		}
	})
}
