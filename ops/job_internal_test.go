package ops

import (
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/pillarbox-dev/pillarbox/outbox/schema"
	"github.com/pillarbox-dev/pillarbox/relay"
)

// What becomes of each kind of row, by the kind of job.
func TestJobJudges(t *testing.T) {
	quarantined := []relay.Status{relay.StatusQuarantined}
	for _, c := range []struct {
		kind   JobKind
		asked  []relay.Status
		status relay.Status
		topic  string
		beyond bool
		want   judgement
	}{
		{JobRetry, nil, relay.StatusFailed, "a", false, touch},
		{JobRetry, nil, relay.StatusQuarantined, "a", false, touch},
		{JobRetry, quarantined, relay.StatusFailed, "a", false, ignore},
		{JobRetry, nil, relay.StatusQuarantined, "", true, skip}, // its event is gone
		{JobDiscard, nil, relay.StatusQuarantined, "", true, touch},
		{JobReplay, nil, relay.StatusPublished, "a", false, touch},
		{JobReplay, nil, relay.StatusDiscarded, "a", false, touch},
		{JobReplay, nil, relay.StatusQuarantined, "a", false, touch},
		{JobReplay, nil, relay.StatusFailed, "a", false, skip},
		{JobReplay, nil, relay.StatusPending, "a", false, skip},
		{JobReplay, nil, relay.StatusPublishing, "a", false, skip},
		{JobReplay, nil, relay.StatusPublished, "a", true, skip}, // above the cursor or in a gap
		{JobReplay, quarantined, relay.StatusPublished, "a", false, ignore},
		{JobReplay, quarantined, relay.StatusPublishing, "a", false, ignore},
		{JobReplay, nil, "", "a", false, begin},
		{JobReplay, nil, "", "b", false, ignore}, // the destination does not want it
		{JobReplay, nil, "", "a", true, skip},
		{JobReplay, quarantined, "", "a", false, ignore},
	} {
		j := Job{JobRequest: JobRequest{Kind: c.kind, Filter: Filter{Statuses: c.asked}}}
		got := j.judge(candidate{seq: 1, topic: c.topic, status: c.status, fits: true, beyond: c.beyond}, relay.Topics{"a"})
		if got != c.want {
			t.Errorf("%+v: got %v", c, got)
		}
	}
}

// Whatever fits, the position is that of the last row that was looked at, and never beyond one that was left for later.
func TestJobChooses(t *testing.T) {
	published := func(seq int64) candidate {
		return candidate{seq: seq, topic: "a", status: relay.StatusPublished, fits: true}
	}
	full := make([]candidate, jobLook)
	for i := range full {
		full[i] = candidate{seq: int64(i) + 1, topic: "a", status: relay.StatusPublished}
	}
	underWay := candidate{seq: 3, topic: "a", status: relay.StatusPublishing, fits: true}
	other, none := published(7), published(7)
	other.topic, none.status = "b", ""
	for name, c := range map[string]struct {
		seen []candidate
		room int64
		want chosen
	}{
		"nothing":                     {nil, 5, chosen{position: 9000}},
		"all, and the end":            {[]candidate{published(2), published(4)}, 5, chosen{rows: []int64{2, 4}, position: 9000}},
		"not all":                     {[]candidate{published(2), published(4), underWay}, 2, chosen{rows: []int64{2, 4}, position: 4}},
		"just as many as wanted":      {[]candidate{published(2), published(4)}, 2, chosen{rows: []int64{2, 4}, position: 4}},
		"one is under way":            {[]candidate{published(2), underWay}, 9, chosen{rows: []int64{2}, skipped: 1, position: 9000}},
		"nothing fits in a full look": {full, 5, chosen{position: jobLook}},
		"another topic":               {[]candidate{other}, 5, chosen{position: 9000}},
		"no row":                      {[]candidate{none, published(8)}, 5, chosen{rows: []int64{8}, fresh: []int64{7}, position: 9000}},
	} {
		j := Job{JobRequest: JobRequest{Kind: JobReplay, Filter: Filter{Topics: relay.Topics{"a"}}}, ToSeq: 9000}
		got := j.choose(c.seen, c.room, nil)
		if !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: got %+v, want %+v", name, got, c.want)
		}
	}
}

// The rate is kept however long nobody has worked on the job.
func TestJobRoom(t *testing.T) {
	for _, c := range []struct {
		rate          int
		max, affected int64
		unused        time.Duration
		want          int64
	}{
		{1000, 0, 0, 250 * time.Millisecond, 250},
		{1000, 0, 0, time.Hour, 500},
		{1000, 0, 0, 0, 0},
		{1000, 0, 0, -time.Second, 0}, // a clock that was set back
		{3, 0, 0, 250 * time.Millisecond, 0},
		{3, 0, 0, 350 * time.Millisecond, 1},
		{1, 0, 0, time.Hour, 1},
		{MaxJobRate, 0, 0, time.Second, jobChunk},
		{1000, 600, 590, time.Second, 10},
	} {
		s := jobStep{Ops: &Ops{dialect: schema.Postgres}, Job: Job{Affected: c.affected}}
		s.RatePerSecond, s.MaxEvents = c.rate, c.max
		if got := s.room(c.unused); got != c.want {
			t.Errorf("%+v: got %d", c, got)
		}
		s.dialect = schema.SQLite
		if got := s.room(c.unused); got != min(c.want, jobSmall) {
			t.Errorf("%+v in SQLite: got %d", c, got)
		}
	}
}

// All problems of a request come at once.
func TestJobRequestProblems(t *testing.T) {
	now := time.Now()
	bad := JobRequest{Kind: "undo", RatePerSecond: MaxJobRate + 1, MaxEvents: -1, Filter: Filter{
		Topics: relay.Topics{""}, Since: now, Until: now, FromSeq: 5, ToSeq: 4, Key: string(make([]byte, MaxJobText+1)),
	}}
	if got := len(bad.problems()); got != 8 {
		t.Errorf("got %d problems, want 8: %v", got, bad.problems())
	}
	for kind, status := range map[JobKind]relay.Status{
		JobRetry: relay.StatusPublished, JobDiscard: relay.StatusPending, JobReplay: relay.StatusFailed,
	} {
		r := JobRequest{Kind: kind, RatePerSecond: 1, Filter: Filter{Destination: "d", Statuses: []relay.Status{status}}}
		if got := r.problems(); len(got) != 1 {
			t.Errorf("a %s of what is %s: got %v, want one problem", kind, status, got)
		}
		r.Filter.Statuses = slices.Clone(kind.statuses())
		if got := r.problems(); len(got) != 0 {
			t.Errorf("a %s of what it is for: got %v", kind, got)
		}
	}
	if got := (JobRequest{Kind: JobRetry, Filter: Filter{Destination: "d"}}).withDefaults(); len(got.problems()) != 0 {
		t.Errorf("the defaults: %v", got.problems())
	}
	if fmt.Sprint(JobRequest{}.problems()) == "[]" {
		t.Error("an empty request has no problem")
	}
}
