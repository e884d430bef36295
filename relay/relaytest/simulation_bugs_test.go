package relaytest_test

import (
	"strings"
	"testing"

	"github.com/pillarbox-dev/pillarbox/relay/relaytest"
)

// TestSimulationFindsBugs plants each bug and wants the simulation to notice that a promise is broken, and which.
func TestSimulationFindsBugs(t *testing.T) {
	const runs = 2000 // at most: most are found by the first few
	const (
		lost, falseEvent, order   = "no lost event", "no false event", "order per key"
		duplicates, silent        = "duplicates only of what was in flight", "duplicates are never silent"
		owners, holds, chargeless = "no two owners", "a quarantined event holds its lane", "an outage charges nothing"
	)
	breaks := map[string][]string{
		"no fencing":                                                   {duplicates, owners, lost, order},
		"uncommitted events are read":                                  {falseEvent},
		"seq > last: gaps are ignored":                                 {lost},
		"a gap is taken for dead too early":                            {lost},
		"gaps are dropped at settle":                                   {lost},
		"the position moves over what is not settled":                  {lost},
		"a clean stop forgets what is in flight":                       {lost},
		"a retry is dropped":                                           {lost},
		"a quarantined event does not hold its lane":                   {holds, order},
		"parked events are forgotten at a takeover":                    {lost, order},
		"what a former owner had in flight is forgotten at a takeover": {duplicates},
		"a takeover frees what other shards have in flight":            {duplicates, order},
		"a reshard begins at the fastest position":                     {lost, order},
		"lanes ignore the key":                                         {order},
		"claims come out of order":                                     {order},
		"a renewal that failed is taken for one that did not":          {owners, duplicates},
		"an unknown outcome is taken as published":                     {lost},
		"an outage is charged":                                         {chargeless},
		"a shutdown is charged":                                        {lost},
		"duplicates are silent":                                        {silent},
	}
	for _, bug := range relaytest.Bugs() {
		t.Run(bug.Name, func(t *testing.T) {
			var found string
			simulate(t, runs, bug, func(w *world) (stop bool) {
				for _, violation := range w.violations {
					for _, promise := range breaks[bug.Name] {
						if strings.Contains(violation, promise) {
							found = violation
							t.Logf("seed %d: %s", w.seed, violation)
						}
					}
				}
				return found != ""
			})
			if found == "" {
				t.Errorf("%d runs did not break any of the promises %q", runs, breaks[bug.Name])
			}
		})
	}
}
