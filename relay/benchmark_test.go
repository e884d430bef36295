package relay

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"
)

// endless is a store that costs nothing: what is measured is the relay's own work for an event.
type endless struct {
	events  int
	ready   []*Event
	settled int
	done    chan struct{}
}

func newEndless(events, keys int) *endless {
	s := &endless{events: events, done: make(chan struct{})}
	for seq := range int64(events) {
		s.ready = append(s.ready, &Event{Seq: seq + 1, ID: "id", Topic: "t", Key: fmt.Sprint("key-", seq%int64(keys)), Payload: make([]byte, 420)})
	}
	return s
}

func (s *endless) Read(_ context.Context, q Query) (Page, error) {
	from := min(int(q.After), s.events)
	to := min(from+q.Limit, s.events)
	p := Page{Events: s.ready[from:to], Seqs: make([]int64, to-from)}
	for i, e := range p.Events {
		p.Seqs[i] = e.Seq
	}
	return p, nil
}

func (s *endless) Acquire(_ context.Context, r AcquireRequest) (Lease, bool, error) {
	return Lease{LeaseID: LeaseID{Destination: r.Destination, Owner: r.Owner, Epoch: 1, TTL: r.TTL}, LastSeq: int64(s.events)}, true, nil
}

func (s *endless) Settle(_ context.Context, _ LeaseID, a Settlement) (Settled, error) {
	if s.settled += len(a.Published); s.settled == s.events && len(a.Published) > 0 {
		close(s.done)
	}
	return Settled{Bound: 1}, nil
}

func (s *endless) Renew(context.Context, LeaseID) (Renewal, error) {
	return Renewal{LastSeq: int64(s.events)}, nil
}
func (s *endless) Release(context.Context, LeaseID) error { return nil }
func (s *endless) Recover(context.Context, LeaseID, int) (Recovered, error) {
	return Recovered{NextDue: -1}, nil
}
func (s *endless) Claim(context.Context, LeaseID, Claim) (Claimed, error) {
	return Claimed{NextDue: -1}, nil
}

type null struct{ batch int }

func (n null) MaxBatch() int { return n.batch }
func (null) Deliver(_ context.Context, batch []Delivery) []Outcome {
	outcomes := make([]Outcome, len(batch))
	for i := range outcomes {
		outcomes[i] = Outcome{Kind: Published, Receipt: "0@1"}
	}
	return outcomes
}

func BenchmarkRelay(b *testing.B) {
	for _, batch := range []int{1, 1000} {
		for _, keys := range []int{1, 10_000} {
			b.Run(fmt.Sprintf("batch=%d/keys=%d", batch, keys), func(b *testing.B) {
				store := newEndless(b.N, keys)
				r, err := New(Config{Store: store, Owner: "o", Logger: slog.New(slog.DiscardHandler),
					Destinations: []DestinationConfig{{Name: "d", Destination: null{batch}}}})
				if err != nil {
					b.Fatal(err)
				}
				ctx, stop := context.WithCancel(b.Context())
				stopped := make(chan error, 1)
				b.ReportAllocs()
				b.ResetTimer()
				start := time.Now()
				go func() { stopped <- r.Run(ctx) }()
				<-store.done
				b.ReportMetric(float64(b.N)/time.Since(start).Seconds(), "events/s")
				b.StopTimer()
				stop()
				if err := <-stopped; err != nil {
					b.Fatal(err)
				}
			})
		}
	}
}
