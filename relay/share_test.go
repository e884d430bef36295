package relay_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/pillarbox-dev/pillarbox/relay"
)

// silent is a destination of many endpoints without limits of their own, some of which take deliveries and never answer.
type silent struct{ *script }

func (silent) Endpoint(e *relay.Event) string {
	endpoint, _, _ := strings.Cut(e.Key, "/")
	return endpoint
}

func (silent) Several() bool { return true }

func (silent) MaxBatch() int { return 1 }

func (s silent) Deliver(ctx context.Context, batch []relay.Delivery) []relay.Outcome {
	if strings.HasPrefix(batch[0].Endpoint, "hole") {
		<-ctx.Done()
		return []relay.Outcome{{Code: "TIMEOUT", Trouble: true}}
	}
	return s.script.Deliver(ctx, batch)
}

// One silent endpoint takes no more than its share, and four, which would take everything, only for as long as their calls
// are not yet slow.
func TestRelaySilentEndpointsLeaveRoomForOthers(t *testing.T) {
	for _, silents := range []int{1, 4} {
		bubble(t, func(h *harness) {
			h.dest.takes = 10 * time.Millisecond
			for i := range 400 {
				h.commit(fmt.Sprintf("hole%d/%d", i%silents, i), fmt.Sprint("h", i))
			}
			for i := range 400 {
				h.commit(fmt.Sprintf("good/%d", i), fmt.Sprint("g", i))
			}
			stop := h.start(func(d *relay.DestinationConfig) { d.Destination = silent{h.dest} })
			h.wait(5 * time.Second) // no delivery to a silent one has timed out yet
			if n := len(h.dest.deliveries()); n != 400 {
				t.Errorf("%d silent endpoints: %d of 400 were delivered to the other", silents, n)
			}
			stop()
		})
	}
}

// One round of timeouts opens the breaker: were its limit lower, it would go on in twos and ones for minutes.
func TestRelaySilentEndpointOpensItsBreakerAtOnce(t *testing.T) {
	bubble(t, func(h *harness) {
		for i := range 100 {
			h.commit(fmt.Sprintf("hole/%d", i), fmt.Sprint("h", i))
		}
		destination := relay.DestinationConfig{Name: "d", Destination: silent{h.dest}}
		r, err := relay.New(relay.Config{Store: h.store, Owner: "relay", Logger: slog.New(slog.DiscardHandler),
			Destinations: []relay.DestinationConfig{destination}})
		if err != nil {
			h.t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(h.t.Context())
		done := make(chan error, 1)
		go func() { done <- r.Run(ctx) }()
		h.wait(11 * time.Second) // the timeout is 10 s
		var states []string
		for _, e := range r.Status()[0].Endpoints {
			states = append(states, e.Endpoint+" "+e.State)
		}
		h.want("endpoints in trouble", states, "hole open")
		cancel()
		if err := <-done; err != nil {
			h.t.Error(err)
		}
	})
}
