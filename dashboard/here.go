package dashboard

import (
	"fmt"
	"slices"
	"strings"

	"github.com/pillarbox-dev/pillarbox/ops"
	"github.com/pillarbox-dev/pillarbox/relay"
)

// here is what this process knows of a destination: the sum of its units, one for each shard, or the worst of them.
type here struct {
	Err error
	// Mine: it works on the destination, or on a shard of it, as Owner.
	Mine           bool
	Owner          string
	InFlight, Held int
	Troubles       []relay.EndpointStatus
}

// here returns it by destination.
func (d *Dashboard) here() map[string]*here {
	all := map[string]*here{}
	if d.config.Units == nil {
		return all
	}
	for _, unit := range d.config.Units() {
		if all[unit.Destination] == nil {
			all[unit.Destination] = &here{}
		}
		all[unit.Destination].add(unit)
	}
	return all
}

func (h *here) add(u relay.UnitStatus) {
	if h.Err == nil {
		h.Err = u.Err
	}
	if !u.Leased {
		return
	}
	h.Mine, h.Owner = true, u.Holder
	h.InFlight += u.InFlight
	h.Held += u.Held
	for _, e := range u.Endpoints {
		h.trouble(e)
	}
}

// troubleStates are the states of an endpoint that is in trouble, the worst first.
var troubleStates = [...]string{"open", "paused", "probing", "draining"}

// trouble takes in an endpoint. Each shard has a breaker of its own for it: the worst counts.
func (h *here) trouble(e relay.EndpointStatus) {
	badness := func(e relay.EndpointStatus) int { return -slices.Index(troubleStates[:], e.State) }
	at := slices.IndexFunc(h.Troubles, func(known relay.EndpointStatus) bool { return known.Endpoint == e.Endpoint })
	switch {
	case at < 0:
		h.Troubles = append(h.Troubles, e)
	case badness(e) > badness(h.Troubles[at]):
		h.Troubles[at] = e
	}
}

// shardRow is one shard of several.
type shardRow struct {
	ops.ShardStatus
	State string
}

// ShardRows are the shards of a destination that has several.
func (d destinationRow) ShardRows() (rows []shardRow) {
	for _, s := range d.Shards {
		row := shardRow{s, stateRunning}
		switch {
		case s.Paused:
			row.State = statePaused
		case s.LeaseOwner == "":
			row.State = stateNoRelay
		}
		rows = append(rows, row)
	}
	return rows
}

// byOwner tells which shards each relay works on, "" for none, in words; of a destination in one piece there is nothing to tell.
func byOwner(d ops.DestinationStatus) map[string]string {
	if len(d.Shards) == 0 {
		return map[string]string{d.LeaseOwner: ""}
	}
	shards := map[string][]string{}
	for _, s := range d.Shards {
		shards[s.LeaseOwner] = append(shards[s.LeaseOwner], fmt.Sprint(s.Shard))
	}
	words := map[string]string{}
	for owner, numbers := range shards {
		word := "shards"
		if len(numbers) == 1 {
			word = "shard"
		}
		words[owner] = fmt.Sprintf("%s %s of %d", word, strings.Join(numbers, ", "), len(d.Shards))
	}
	return words
}
