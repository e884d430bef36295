package relay_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/pillarbox-dev/pillarbox/relay"
)

// silent is a destination of many endpoints without limits of their own, one of which takes deliveries and never answers.
type silent struct{ *script }

func (silent) Endpoint(e *relay.Event) string {
	endpoint, _, _ := strings.Cut(e.Key, "/")
	return endpoint
}

func (silent) MaxBatch() int { return 1 }

func (s silent) Deliver(ctx context.Context, batch []relay.Delivery) []relay.Outcome {
	if batch[0].Endpoint == "hole" {
		<-ctx.Done()
		return []relay.Outcome{{Code: "TIMEOUT", Trouble: true}}
	}
	return s.script.Deliver(ctx, batch)
}

func TestRelaySilentEndpointLeavesRoomForOthers(t *testing.T) {
	bubble(t, func(h *harness) {
		h.dest.takes = 10 * time.Millisecond
		stop := h.start(func(d *relay.DestinationConfig) { d.Destination = silent{h.dest} })
		for i := range 100 {
			h.commit(fmt.Sprintf("hole/%d", i), fmt.Sprint("h", i))
		}
		for i := range 100 {
			h.commit(fmt.Sprintf("good/%d", i), fmt.Sprint("g", i))
		}
		h.wait(5 * time.Second) // no delivery to the silent one has timed out yet
		if n := len(h.dest.deliveries()); n != 100 {
			t.Errorf("%d of 100 were delivered to the others while one endpoint is silent", n)
		}
		stop()
	})
}
