package telemetry

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/pillarbox-dev/pillarbox/ops"
	"github.com/pillarbox-dev/pillarbox/relay"
)

func TestSnapshotsTellWhatWasCounted(t *testing.T) {
	m := NewMetrics(MetricsConfig{
		Destinations: []string{"b", "a"}, Units: func() []relay.UnitStatus { return nil },
		Status: NewStatusCache(func(context.Context) (ops.Status, error) { return ops.Status{}, nil }, slog.New(slog.DiscardHandler)),
	})
	for range 98 {
		m.Read("a", 1, 700*time.Microsecond)
	}
	m.Read("a", 1, 40*time.Millisecond)
	m.Read("a", 1, time.Hour)
	m.Noticed("a", relay.Notice{Kind: relay.NoticePossibleDuplicate, Count: 3})
	calls := m.Calls()
	if len(calls) != 2 || calls[0].Destination != "a" || calls[1].Destination != "b" {
		t.Fatalf("got %v, want a and b", calls)
	}
	if got := calls[0].Read; got.Count != 100 || got.P50 != 1 || got.P99 != 50 {
		t.Errorf("got %+v, want 100, half of them within 1 ms and 99 %% within 50 ms", got)
	}
	if got := calls[1].Settle; got != (Summary{}) {
		t.Errorf("got %+v of nothing", got)
	}
	if got := m.PossibleDuplicates("a"); got != 3 {
		t.Errorf("got %d possible duplicates, want 3", got)
	}
	m.Read("b", 1, time.Hour)
	if got := m.Calls()[1].Read; got.P50 != 0 || got.P99 != 0 || got.Mean != 3_600_000 {
		t.Errorf("got %+v beyond the last bucket, want no percentiles", got)
	}
}

func TestSnapshotsOfProducers(t *testing.T) {
	m := NewKafkaMetrics()
	if got := m.Producers(); len(got) != 0 {
		t.Errorf("got %v before there is a producer", got)
	}
	m.For("z")
	p := m.For("events")
	p.Sent(500, 3*time.Millisecond)
	p.Failed(2, "TIMEOUT")
	got := m.Producers()
	if len(got) != 2 || got[0].Destination != "events" || got[1].Destination != "z" {
		t.Fatalf("got %v, want events and z", got)
	}
	if g := got[0]; g.Records != 500 || g.Errors != 2 || g.Send.Count != 1 || g.Send.P50 != 3 || g.Send.Mean != 3 {
		t.Errorf("got %+v", g)
	}
}
