package relaytest_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/pillarbox-dev/pillarbox/relay"
)

// farSide is what stands at the far end of a destination: one or several endpoints, each with its weather.
type farSide struct {
	endPlan
	w       *world
	weather map[string][]spell // by endpoint
}

// weather is the state of an endpoint for a while.
type weather string

const (
	fair  weather = "fair"
	down  weather = "down"  // cannot be reached
	hole  weather = "hole"  // takes everything and answers nothing
	slow  weather = "slow"  // answers late, or too late
	flaps weather = "flaps" // fails every other time
	storm weather = "storm" // rejects everything
	gone  weather = "gone"  // rejects everything, and says that waiting will not mend it
	moved weather = "moved" // is not there, and says the same
)

// spell is weather that lasts until a time.
type spell struct {
	until time.Time
	weather
}

func newFarSide(w *world, p endPlan) *farSide {
	f := &farSide{endPlan: p, w: w, weather: map[string][]spell{}}
	for _, endpoint := range f.endpointNames() {
		chance := chanceOf(w.seed, "weather "+p.name+endpoint)
		at := w.began
		for at.Before(w.began.Add(w.plan.hostile)) {
			s := spell{weather: fair}
			switch n := chance.IntN(12); {
			case n < 2:
				s.weather = down
			case n == 2:
				s.weather = hole
			case n == 3:
				s.weather = slow
			case n == 4:
				s.weather = flaps
			case n == 5 && w.plan.storms:
				s.weather = []weather{storm, gone}[chance.IntN(2)]
			case n == 6 && chance.IntN(3) == 0:
				s.weather = moved
			}
			at = at.Add(time.Duration(chance.IntN(4000)) * time.Millisecond)
			s.until = at
			f.weather[endpoint] = append(f.weather[endpoint], s)
		}
	}
	return f
}

func (f *farSide) endpointNames() []string {
	names := []string{""}
	for i := range f.endpoints {
		names = append(names, fmt.Sprint("endpoint-", i))
	}
	return names
}

// route is the endpoint of an event.
func (f *farSide) route(key, id string) string {
	if f.endpoints == 0 {
		return ""
	}
	if key == "" {
		key = id
	}
	n := hash(key)
	if f.moves && time.Since(f.w.began) > f.w.plan.hostile/2 && n/uint64(f.endpoints)%2 == 0 {
		n++
	}
	return fmt.Sprint("endpoint-", n%uint64(f.endpoints))
}

func (f *farSide) now(endpoint string) weather {
	if f.w.isCalm() {
		return fair
	}
	for _, s := range f.weather[endpoint] {
		if time.Now().Before(s.until) {
			return s.weather
		}
	}
	return fair
}

// door is a process's way to a far side: a relay.Destination.
type door struct {
	*farSide
	p *process
}

func (d door) MaxBatch() int { return d.batch }

// Deliver tries the batch in order. What follows a delivery that has to be tried again is not tried when it has the same key.
func (d door) Deliver(ctx context.Context, batch []relay.Delivery) []relay.Outcome {
	if chance := d.chance(&batch[0]); len(batch) > 1 && chance.IntN(20) == 0 && !d.w.isCalm() {
		return d.cutOff(batch)
	}
	outcomes := make([]relay.Outcome, len(batch))
	stopped := map[string]bool{}
	for i := range batch {
		b := &batch[i]
		if b.Key != "" && stopped[b.Key] {
			outcomes[i] = relay.Outcome{Kind: relay.Released}
			continue
		}
		outcomes[i] = d.try(ctx, b)
		if o := outcomes[i].Kind; o != relay.Published && o != relay.Reject {
			stopped[b.Key] = true
		}
	}
	if chance := d.chance(&batch[0]); chance.IntN(60) == 1 && !d.w.isCalm() && !outcomes[len(batch)-1].Uncertain {
		d.w.reach("outcome missing")
		return outcomes[:len(batch)-1] // of the last one: what follows in its lane was not tried either
	}
	return outcomes
}

// cutOff takes the batch in as a whole, as a broker takes a record batch, and its answer is lost: each may have arrived.
func (d door) cutOff(batch []relay.Delivery) []relay.Outcome {
	outcomes := make([]relay.Outcome, len(batch))
	for i := range batch {
		outcomes[i] = relay.Outcome{Kind: relay.Retry, Code: "RESET", Uncertain: true}
		if d.w.classOf(batch[i].ID) == plain {
			d.w.accept(d.p, d.farSide, &batch[i])
		}
	}
	d.w.reach("batch cut off")
	return outcomes
}

// doorWithEndpoints is a door of a destination with several endpoints.
type doorWithEndpoints struct{ door }

func (d doorWithEndpoints) Endpoint(e *relay.Event) string { return d.w.routed(d.p, d.farSide, e.ID) }

func (d doorWithEndpoints) Several() bool { return true }

func (d doorWithEndpoints) EndpointLimit(string) int { return 1 + len(d.name)%3 }

// try delivers one event in the present weather.
func (d door) try(ctx context.Context, b *relay.Delivery) relay.Outcome {
	w, chance := d.w, d.chance(b)
	if ctx.Err() != nil && chance.IntN(2) == 0 {
		return ended(ctx, false)
	}
	epoch, _ := ctx.Value(epochKey{}).(int64)
	attempt := w.trying(d.p, d.farSide, b, epoch)
	takes := time.Duration(chance.IntN(20)) * time.Millisecond
	switch d.now(b.Endpoint) {
	case down:
		return relay.Outcome{Kind: relay.Unavailable, Code: "DOWN"}
	case hole:
		if chance.IntN(3) == 0 {
			w.accept(d.p, d.farSide, b)
		}
		<-ctx.Done()
		if chance.IntN(4) == 0 { // it comes back later than it should
			d.w.reach("late past its context")
			time.Sleep(time.Duration(chance.IntN(int(2 * w.plan.lease))))
		}
		return ended(ctx, true)
	case slow:
		takes = time.Duration(chance.IntN(int(2 * d.config.Timeout)))
	case flaps:
		if attempt%2 == 1 {
			return relay.Outcome{Kind: relay.Retry, Code: "HTTP_503", Trouble: true}
		}
	case storm:
		return relay.Outcome{Kind: relay.Reject, Code: "HTTP_401"}
	case gone:
		return relay.Outcome{Kind: relay.Reject, Code: "HTTP_410", Pause: true}
	case moved:
		return relay.Outcome{Kind: relay.Unavailable, Code: "MOVED", Pause: true}
	}
	if !sleepFor(ctx, takes) { // also what was sent long ago, by a process that was frozen since
		if chance.IntN(2) == 0 {
			w.accept(d.p, d.farSide, b)
		}
		return ended(ctx, true)
	}
	return d.answer(ctx, b, attempt, chance)
}

// answer is what an endpoint in fair weather says.
func (d door) answer(ctx context.Context, b *relay.Delivery, attempt int, chance *rand.Rand) relay.Outcome {
	switch d.w.classOf(b.ID) {
	case poison:
		return relay.Outcome{Kind: relay.Reject, Code: "HTTP_422"}
	case hopeless:
		return relay.Outcome{Kind: relay.Retry, Code: "HTTP_500"}
	case flaky:
		if attempt <= 2 {
			return relay.Outcome{Kind: relay.Retry, Code: "HTTP_500"}
		}
	case killer:
		d.w.reach("killed by an event")
		d.p.kill("event " + b.ID)
		<-ctx.Done()
		return ended(ctx, true)
	}
	d.w.accept(d.p, d.farSide, b)
	if chance.IntN(40) == 0 && !d.w.isCalm() {
		return relay.Outcome{Kind: relay.Retry, Code: "RESET", Uncertain: true}
	}
	if chance.IntN(60) == 0 && !d.w.isCalm() { // the first answer was lost, and the destination tried again
		d.w.accept(d.p, d.farSide, b)
		return relay.Outcome{Kind: relay.Published, Receipt: "200", Uncertain: true}
	}
	return relay.Outcome{Kind: relay.Published, Receipt: "200"}
}

// chance is the same for the same attempt, in whatever order goroutines run.
func (d door) chance(b *relay.Delivery) *rand.Rand {
	return chanceOf(d.w.seed, fmt.Sprint(d.name, b.ID, d.w.attempts(d.farSide, b.ID)))
}

// ended is the outcome of an attempt whose context has ended.
func ended(ctx context.Context, sent bool) relay.Outcome {
	if errors.Is(context.Cause(ctx), relay.ErrShutdown) {
		return relay.Outcome{Kind: relay.Released, Uncertain: sent}
	}
	return relay.Outcome{Kind: relay.Retry, Code: "TIMEOUT", Uncertain: sent, Trouble: true}
}

func sleepFor(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}
