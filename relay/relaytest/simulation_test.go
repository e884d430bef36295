package relaytest_test

import (
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/pillarbox-dev/pillarbox/relay/relaytest"
)

// The simulation runs whole relays against a hostile world in virtual time: go test -run TestSimulation. A run that fails
// prints its seed; -seed runs it alone, with its whole trace. The order in which goroutines run at the same instant is up to
// the scheduler, so -runs repeats it.
var (
	runsFlag = flag.Int("runs", 2000, "hostile runs of the simulation")
	fromFlag = flag.Uint64("from", 1, "seed of the first run")
	seedFlag = flag.Uint64("seed", 0, "run this seed alone, -runs times")
)

// sometimes are the states that a run may reach and that all of them together must: a simulation that never gets there
// proves nothing about them. Those with an underscore are notices of the relay.
var sometimes = []string{
	"gap_filled", "gap_dead", "parked", "publishing", "possible_duplicate", "isolating", "guard", "breaker_open", "breaker_closed",
	"lease_taken", "lease_lost", "lease_released", "store_error",
	"settle failed", "settle answer lost", "claim answer lost", "recover answer lost", "lease lost at settle", "taken over",
	"stopped", "killed", "killed by an event", "frozen past the lease", "cut off past the lease", "zombie arrives",
	"rejected", "uncertain", "duplicate", "released delivery", "exhausted", "crashed relay", "breach of contract", "no ledger",
	"postponed", "batch of one lane", "batch of many lanes", "batch cut off", "held by a quarantine", "lanes cut", "woken",
	"discarded", "discarded in a held lane", "retried by an operator", "replayed by an operator", "paused",
	"unavailable", "outcome missing", "late past its context", "routed anew",
	"sharded", "shared by several relays", "resharded", "resharded after a crash", "resharded with shards apart", "reshard refused",
}

// TestSimulation makes thousands of hostile runs. The promises of the design must hold in each, and all the interesting
// states must have been reached.
func TestSimulation(t *testing.T) {
	runs := *runsFlag
	if testing.Short() {
		runs = min(runs, 200)
	}
	var failed atomic.Int32
	reached := simulate(t, runs, relaytest.Bug{}, func(w *world) (stop bool) {
		if len(w.violations) == 0 {
			return false
		}
		t.Errorf("seed %d: %s\n%s\nrun it alone with -run TestSimulation -seed %d -runs 20",
			w.seed, strings.Join(w.violations, "\n"), w.story(*seedFlag != 0), w.seed)
		return failed.Add(1) >= 3
	})
	for _, state := range sometimes {
		if reached[state] == 0 && runs >= 1000 && *seedFlag == 0 {
			t.Errorf("no run reached the state %q", state)
		}
	}
	if testing.Verbose() {
		for _, state := range slices.Sorted(maps.Keys(reached)) {
			t.Logf("%8d × %s", reached[state], state)
		}
	}
}

// simulate makes runs, as many at once as there are processors, until done says so. It returns how often each state was reached.
func simulate(t *testing.T, runs int, bug relaytest.Bug, done func(*world) (stop bool)) map[string]int {
	reached := map[string]int{}
	var mu sync.Mutex
	var next atomic.Int64
	var stop atomic.Bool
	t.Run("runs", func(t *testing.T) {
		for worker := range runtime.GOMAXPROCS(0) {
			t.Run(fmt.Sprint(worker), func(t *testing.T) {
				t.Parallel()
				for !stop.Load() {
					n := next.Add(1)
					if n > int64(runs) {
						return
					}
					seed := *fromFlag + uint64(n) - 1
					if *seedFlag != 0 {
						seed = *seedFlag
					}
					var w *world
					synctest.Test(t, func(*testing.T) {
						w = newWorld(seed, bug)
						w.run()
					})
					mu.Lock()
					for state, count := range w.reached {
						reached[state] += count
					}
					if done(w) {
						stop.Store(true)
					}
					mu.Unlock()
				}
			})
		}
	})
	return reached
}

// chanceOf returns a source of chance for one purpose of a run.
func chanceOf(seed uint64, purpose string) *rand.Rand {
	return rand.New(rand.NewPCG(seed, hash(purpose)))
}

// hash is FNV-1a.
func hash(parts ...string) uint64 {
	h := uint64(14695981039346656037)
	for _, part := range parts {
		for i := range len(part) {
			h = (h ^ uint64(part[i])) * 1099511628211
		}
		h = (h ^ '/') * 1099511628211
	}
	return h
}
