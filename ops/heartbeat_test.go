package ops_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/pillarbox-dev/pillarbox/ops"
	"github.com/pillarbox-dev/pillarbox/outbox/schema"
)

// beat is a heartbeat's payload.
type beat struct {
	Name            string           `json:"name"`
	Start           time.Time        `json:"interval_start"`
	End             time.Time        `json:"interval_end"`
	Count           int64            `json:"count"`
	ByType          map[string]int64 `json:"by_type"`
	NothingToReport bool             `json:"nothing_to_report"`
}

// beats returns the heartbeats in the log.
func (b *box) beats() (all []beat) {
	b.Helper()
	rows, err := b.db.QueryContext(b.Context(), "select payload from outbox_event where event_type = 'Heartbeat' order by seq")
	b.must(err)
	defer rows.Close()
	for rows.Next() {
		var text string
		b.must(rows.Scan(&text))
		var one beat
		b.must(json.Unmarshal([]byte(text), &one))
		all = append(all, one)
	}
	b.must(rows.Err())
	return all
}

// back sets the end of a heartbeat's last interval back, as if time had passed.
func (b *box) back(name string, by time.Duration) {
	b.Helper()
	var text string
	b.must(b.db.QueryRowContext(b.Context(), "select state from outbox_task where name = $1", "heartbeat/"+name).Scan(&text))
	var state map[string]any
	b.must(json.Unmarshal([]byte(text), &state))
	end, err := time.Parse(time.RFC3339, state["end"].(string))
	b.must(err)
	state["end"] = end.Add(-by)
	changed, err := json.Marshal(state)
	b.must(err)
	past := map[schema.Dialect]string{schema.Postgres: "to_timestamp(0)", schema.SQLite: "0"}[b.dialect]
	b.exec("update outbox_task set due_at = "+past+", state = $2 where name = $1", "heartbeat/"+name, string(changed))
}

func (b *box) beat(h ops.Heartbeat) time.Duration {
	b.Helper()
	next, err := b.Beat(b.Context(), h)
	b.must(err)
	if next < 0 || next > h.Every {
		b.Errorf("the next one is in %v, want it within %v", next, h.Every)
	}
	return next
}

const day = 24 * time.Hour

func TestHeartbeatCounts(t *testing.T) {
	onBoth(t, func(b *box) {
		b.events(5, "orders", time.Minute)
		h := ops.Heartbeat{Name: "daily", Every: day, Topic: "beats", Topics: []string{"order*"}}
		b.beat(h)
		b.beat(h)
		if got := b.beats(); len(got) != 0 {
			b.Fatalf("written at the start: %+v, want none before an interval is over", got)
		}
		b.events(3, "orders", 0)
		b.events(4, "other", 0)
		b.back("daily", day)
		b.beat(h)
		b.back("daily", day)
		b.exec("update outbox_event set dedup_key = 'heartbeat/daily/moved' where event_type = 'Heartbeat'") // the same interval again
		b.beat(h)
		b.beat(h)
		got := b.beats()
		if len(got) != 2 {
			b.Fatalf("%d heartbeats, want 2", len(got))
		}
		first, second := got[0], got[1]
		if first.Count != 3 || first.ByType["T"] != 3 || first.NothingToReport || first.Name != "daily" {
			b.Errorf("first = %+v, want 3 of type T", first)
		}
		if !first.End.Equal(first.Start.Add(day)) || !first.End.Equal(first.End.Truncate(day)) {
			b.Errorf("first spans %v to %v, want a day from midnight on", first.Start, first.End)
		}
		if second.Count != 0 || !second.NothingToReport {
			b.Errorf("second = %+v, want nothing to report", second)
		}
	})
}

// The log is truncated and its numbers begin anew: what is written then is counted, by the next heartbeat and by those after it.
func TestHeartbeatAfterTheNumbersWentBack(t *testing.T) {
	onBoth(t, func(b *box) {
		b.events(50, "orders", 48*time.Hour)
		h := ops.Heartbeat{Name: "daily", Every: day, Topic: "beats"}
		b.beat(h)
		b.exec(b.sql("truncate outbox_event restart identity", "delete from outbox_event"))
		b.exec(b.sql("alter sequence outbox_event_seq restart", "delete from sqlite_sequence where name = 'outbox_event'"))
		b.events(2, "orders", 48*time.Hour) // restored: they were counted in their time
		b.events(3, "orders", 0)
		b.back("daily", day)
		b.beat(h)
		b.events(4, "orders", 0)
		b.back("daily", day)
		b.exec("update outbox_event set dedup_key = 'heartbeat/daily/moved' where event_type = 'Heartbeat'") // the same interval again
		b.beat(h)
		if got := b.beats(); len(got) != 2 || got[0].Count != 3 || got[0].NothingToReport || got[1].Count != 4 {
			b.Errorf("heartbeats = %+v, want one of 3 events and one of 4", got)
		}
	})
}

// A payload can name the event that carries it.
func TestHeartbeatKnowsItsID(t *testing.T) {
	onBoth(t, func(b *box) {
		h := ops.Heartbeat{Name: "h", Every: time.Hour, Topic: "beats", Payload: func(c ops.HeartbeatCounts) ([]byte, error) {
			return json.Marshal(map[string]string{"name": c.EventID})
		}}
		b.beat(h)
		for range 2 {
			b.back("h", time.Hour)
			b.exec("update outbox_event set dedup_key = event_id") // the same interval again
			b.beat(h)
		}
		rows, err := b.db.QueryContext(b.Context(), "select event_id from outbox_event order by seq")
		b.must(err)
		defer rows.Close()
		var ids []string
		for rows.Next() {
			var id string
			b.must(rows.Scan(&id))
			ids = append(ids, id)
		}
		b.must(rows.Err())
		beats := b.beats()
		if len(ids) != 2 || len(beats) != 2 || ids[0] == ids[1] || beats[0].Name != ids[0] || beats[1].Name != ids[1] {
			b.Errorf("events %q, their payloads %+v; want two, each with its own id", ids, beats)
		}
		for _, id := range ids {
			if parsed, err := uuid.Parse(id); err != nil || parsed.Version() != 7 {
				b.Errorf("id %s, %v, want a UUIDv7", id, err)
			}
		}
	})
}

// While nobody ran no heartbeat was written: the next one spans the time, and says so.
func TestHeartbeatSpansWhatWasMissed(t *testing.T) {
	onBoth(t, func(b *box) {
		h := ops.Heartbeat{Name: "h", Every: time.Hour, Topic: "beats"}
		b.beat(h)
		b.events(2, "a", 0)
		b.back("h", 5*time.Hour)
		b.beat(h)
		got := b.beats()
		if len(got) != 1 || got[0].End.Sub(got[0].Start) != 5*time.Hour || got[0].Count != 2 {
			b.Errorf("heartbeats = %+v, want one over five hours with two events", got)
		}
	})
}

// The state is lost, as after a partial restore: the interval's event is there, and stays the only one.
func TestHeartbeatIsWrittenOnceAlsoWithoutItsState(t *testing.T) {
	onBoth(t, func(b *box) {
		h := ops.Heartbeat{Name: "h", Every: time.Hour, Topic: "beats"}
		b.beat(h)
		for range 3 {
			b.back("h", time.Hour)
			b.beat(h)
		}
		if got := b.beats(); len(got) != 1 {
			b.Errorf("%d heartbeats of one interval, want 1", len(got))
		}
	})
}

// An event whose transaction is long on its way is counted when it arrives, once; one that is rolled back never.
func TestHeartbeatCountsLateCommitsOnce(t *testing.T) {
	b := newBox(t, schema.Postgres)
	h := ops.Heartbeat{Name: "h", Every: time.Hour, Topic: "beats"}
	b.beat(h)
	insert := "insert into outbox_event (topic_name, event_type) values ('a', 'T')"
	late, err := b.db.BeginTx(t.Context(), nil)
	b.must(err)
	undone, err := b.db.BeginTx(t.Context(), nil)
	b.must(err)
	for range 3 {
		_, err = late.ExecContext(t.Context(), insert)
		b.must(err)
		_, err = undone.ExecContext(t.Context(), insert)
		b.must(err)
		b.exec(insert)
	}
	var counts []int64
	again := func() {
		b.back("h", time.Hour)
		b.exec("update outbox_event set dedup_key = null, event_type = 'Heartbeat', topic_name = 'old' where dedup_key like 'heartbeat/%'")
		b.exec("delete from outbox_event where topic_name = 'old'")
		b.beat(h)
		counts = append(counts, b.beats()[0].Count)
	}
	again()
	again()
	b.must(undone.Rollback())
	b.must(late.Commit())
	again()
	again()
	again()
	if want := "[3 0 3 0 0]"; fmt.Sprint(counts) != want {
		t.Errorf("counted %v, want %s", counts, want)
	}
	var gaps int
	b.must(b.db.QueryRowContext(t.Context(), `select json_array_length(coalesce(state -> 'gaps', '[]')) from outbox_task`).Scan(&gaps))
	if gaps > 2 { // the heartbeats that this test has deleted leave numbers that no look has seen missing
		t.Errorf("%d gaps are kept, want the dead ones gone", gaps)
	}
}

// Whatever becomes of five processes: the intervals follow each other without overlap, and each event is counted once.
func TestHeartbeatsOfManyProcesses(t *testing.T) {
	onBoth(t, func(b *box) {
		const processes, every, want = 5, 100 * time.Millisecond, 20
		h := ops.Heartbeat{Name: "h", Every: every, Topic: "beats"}
		b.beat(h)
		ctx, stop := context.WithCancel(b.Context())
		var running sync.WaitGroup
		for i := range processes {
			running.Go(func() {
				for n := 0; ctx.Err() == nil; n++ { // it dies and comes again, each at its own times
					life, die := context.WithTimeout(ctx, time.Duration(30+40*i+17*n%90)*time.Millisecond)
					if err := b.RunHeartbeats(life, []ops.Heartbeat{h}, slog.New(slog.DiscardHandler)); err != nil {
						b.Error(err)
					}
					die()
				}
			})
		}
		written := 0
		for deadline := time.Now().Add(60 * time.Second); len(b.beats()) < want; written++ {
			b.events(1, "a", 0)
			if time.Now().After(deadline) {
				b.Errorf("%d heartbeats within a minute, want %d", len(b.beats()), want)
				break
			}
		}
		stop()
		running.Wait()
		b.back("h", 0)
		waitForNext(b, h)
		counted, end := int64(0), time.Time{}
		for i, one := range b.beats() {
			if i > 0 && !one.Start.Equal(end) {
				b.Errorf("heartbeat %d begins at %v, and the one before ends at %v", i, one.Start, end)
			}
			if one.End.Sub(one.Start)%every != 0 || !one.End.After(one.Start) {
				b.Errorf("heartbeat %d spans %v to %v", i, one.Start, one.End)
			}
			end = one.End
			counted += one.Count
		}
		if counted != int64(written) {
			b.Errorf("%d events were counted, want %d", counted, written)
		}
	})
}

// waitForNext lets one more interval pass.
func waitForNext(b *box, h ops.Heartbeat) {
	b.Helper()
	for before := len(b.beats()); len(b.beats()) == before; {
		time.Sleep(b.beat(h))
	}
}

func TestHeartbeatRefuses(t *testing.T) {
	b := newBox(t, schema.SQLite)
	for _, tt := range []struct {
		h    ops.Heartbeat
		want string
	}{
		{ops.Heartbeat{Name: "Bad name", Every: time.Millisecond}, "heartbeat Bad name: name \"Bad name\": use lower-case letters, digits, dots and dashes, " +
			"at most 100\nevery 1ms: use at least 100ms, in whole microseconds\ntopic is missing: say which topic the event goes to"},
	} {
		if err := b.RunHeartbeats(t.Context(), []ops.Heartbeat{tt.h}, slog.New(slog.DiscardHandler)); err == nil || err.Error() != tt.want {
			t.Errorf("error = %v, want %s", err, tt.want)
		}
	}
	h := ops.Heartbeat{Name: "h", Every: time.Hour, Topic: "beats", Payload: func(ops.HeartbeatCounts) ([]byte, error) { return nil, errors.New("no") }}
	b.beat(h)
	b.back("h", time.Hour)
	if _, err := b.Beat(t.Context(), h); err == nil || err.Error() != "heartbeat h: make the payload: no" {
		t.Errorf("error = %v, want that of the payload", err)
	}
	h.Payload = nil
	b.beat(h)
	if got := b.beats(); len(got) != 1 {
		t.Errorf("%d heartbeats after it was mended, want 1", len(got))
	}
}

// The relay's role writes heartbeats when it has the app's grants too, and is told so when it has not.
func TestHeartbeatAsTheRelaysRole(t *testing.T) {
	b := newBox(t, schema.Postgres)
	h := ops.Heartbeat{Name: "h", Every: time.Hour, Topic: "beats"}
	b.beat(h)
	b.back("h", time.Hour)
	relay := b.as(t, func(name, role string) (string, error) { return schema.PrintRoles(name, "", role, "") })
	if _, err := relay.Beat(t.Context(), h); err == nil || !strings.Contains(err.Error(), "the app's role as well") {
		t.Errorf("error = %v, want a hint about the grants", err)
	}
	both := b.as(t, func(name, role string) (string, error) { return schema.PrintRoles(name, role, role, "") })
	_, err := both.Beat(t.Context(), h)
	b.must(err)
	if got := b.beats(); len(got) != 1 {
		t.Errorf("%d heartbeats, want 1", len(got))
	}
}
