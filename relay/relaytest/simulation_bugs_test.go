package relaytest_test

import (
	"strings"
	"testing"

	"github.com/pillarbox-dev/pillarbox/relay/relaytest"
)

// TestSimulationFindsBugs plants each bug and wants the simulation to notice that a promise is broken, and which.
func TestSimulationFindsBugs(t *testing.T) {
	const runs = 500
	promises := map[string][]string{
		"no fencing":                                                   {"duplicates only of what was in flight", "no two owners", "no lost event", "order per key"},
		"uncommitted events are read":                                  {"no false event"},
		"seq > last: gaps are ignored":                                 {"no lost event"},
		"a gap is taken for dead too early":                            {"no lost event"},
		"gaps are dropped at settle":                                   {"no lost event"},
		"the position moves over what is not settled":                  {"no lost event"},
		"a clean stop forgets what is in flight":                       {"no lost event"},
		"a retry is dropped":                                           {"no lost event"},
		"a quarantined event does not hold its lane":                   {"a quarantined event holds its lane", "order per key"},
		"parked events are forgotten at a takeover":                    {"no lost event", "order per key"},
		"what a former owner had in flight is forgotten at a takeover": {"duplicates only of what was in flight"},
		"lanes ignore the key":                                         {"order per key"},
		"claims come out of order":                                     {"order per key"},
		"a renewal that failed is taken for one that did not":          {"no two owners"},
		"an unknown outcome is taken as published":                     {"no lost event"},
		"an outage is charged":                                         {"an outage charges nothing"},
		"a shutdown is charged":                                        {"no lost event"},
		"duplicates are silent":                                        {"duplicates are never silent"},
	}
	for _, bug := range relaytest.Bugs() {
		t.Run(bug.Name, func(t *testing.T) {
			var found string
			simulate(t, runs, bug, func(w *world) (stop bool) {
				for _, violation := range w.violations {
					for _, promise := range promises[bug.Name] {
						if strings.Contains(violation, promise) {
							found = violation
							t.Logf("seed %d: %s", w.seed, violation)
						}
					}
				}
				return found != ""
			})
			if found == "" {
				t.Errorf("%d runs did not break any of the promises %q", runs, promises[bug.Name])
			}
		})
	}
}
