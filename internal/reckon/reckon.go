// Package reckon holds three records against each other at the end of a demo: what a service has committed, what the receiver's
// inbox holds, and what the relay's ledger says. Nothing is called delivered that is not in the inbox, and nothing lost that the
// ledger still holds.
package reckon

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
)

// Written is an event that a service has committed, by its own record, which knows nothing of the outbox. Key is what orders it.
type Written struct{ ID, Key string }

// Handled is an event of the receiver's inbox. Times is how often it arrived.
type Handled struct {
	ID, Key string
	Times   int
}

// Held is what the relay's ledger says of an event.
type Held struct{ Status, Code string }

// Reckoning is what a demo comes to. Every event that was committed is in exactly one of Delivered, Quarantined, Pending and Lost.
type Reckoning struct {
	// Committed and RolledBack are the service's events, by its own record.
	Committed  int `json:"committed"`
	RolledBack int `json:"rolled_back"`
	// Delivered are those committed that are in the receiver's inbox.
	Delivered int `json:"delivered"`
	// Duplicates are deliveries of what was in the inbox already, which it absorbed.
	Duplicates int `json:"duplicates"`
	// Quarantined are those that the relay keeps for an operator, and that are not in the inbox.
	Quarantined int `json:"quarantined"`
	// Lost are those that are neither in the inbox nor held by the relay. It should be 0.
	Lost int `json:"lost"`
	// False are events in the inbox that were never committed. It should be 0.
	False int `json:"false"`
	// OutOfOrder are those that were handled after a later one of the same key. It should be 0.
	OutOfOrder int     `json:"out_of_order"`
	RelayKills int     `json:"relay_kills"`
	Seconds    float64 `json:"seconds"`

	// Pending are those that the relay still has to deliver; 0 unless the drain took too long.
	Pending int `json:"-"`
	// Codes are the reasons of Quarantined.
	Codes map[string]int `json:"-"`
}

// Of reckons. The committed events of a key are in the order of their commits, and the inbox is in the order of handling. A
// ledger that is read while the relay runs is read before the inbox: what is published by then has been handled by then.
func Of(committed []Written, inbox []Handled, ledger map[string]Held) Reckoning {
	r := Reckoning{Committed: len(committed), Codes: map[string]int{}}
	place := map[string]int{} // of an event in the record
	for i, w := range committed {
		place[w.ID] = i
	}
	delivered := map[string]bool{}
	last := map[string]int{} // the latest place of each key
	for _, h := range inbox {
		r.Duplicates += h.Times - 1
		at, real := place[h.ID]
		if !real {
			r.False++
			continue
		}
		r.Delivered++
		delivered[h.ID] = true
		if before, any := last[h.Key]; any && at < before {
			r.OutOfOrder++
			continue
		}
		last[h.Key] = at
	}
	for _, w := range committed {
		if delivered[w.ID] {
			continue
		}
		switch held := ledger[w.ID]; held.Status {
		case "QUARANTINED":
			r.Quarantined++
			r.Codes[held.Code]++
		case "PENDING", "PUBLISHING", "FAILED":
			r.Pending++
		default: // published, it says, or it has never heard of it
			r.Lost++
		}
	}
	return r
}

// Kept tells whether every promise was kept.
func (r Reckoning) Kept() bool { return r.Lost == 0 && r.False == 0 && r.OutOfOrder == 0 }

// Print writes the reckoning, as one JSON object or for people, with notes below. It returns an error when a promise was broken.
func (r Reckoning) Print(w io.Writer, asJSON bool, notes ...string) error {
	if asJSON {
		if err := json.NewEncoder(w).Encode(r); err != nil {
			return err
		}
	} else if _, err := fmt.Fprintf(w, "\n%s\n%s", r, lines(notes)); err != nil {
		return err
	}
	if !r.Kept() {
		return fmt.Errorf("a promise was broken: lost %d, false %d, out of order %d", r.Lost, r.False, r.OutOfOrder)
	}
	if asJSON {
		return nil
	}
	_, err := fmt.Fprintln(w, "Every promise was kept.")
	return err
}

func lines(notes []string) string {
	var b strings.Builder
	for _, note := range notes {
		b.WriteString(note + "\n")
	}
	return b.String()
}

// String returns the reckoning for people.
func (r Reckoning) String() string {
	var b strings.Builder
	line := func(name string, n int, about string) { fmt.Fprintf(&b, "  %-12s %8d   %s\n", name, n, about) }
	line("committed", r.Committed, "events, by the service's own record")
	line("rolled back", r.RolledBack, "events, in whole transactions and to savepoints")
	line("delivered", r.Delivered, "of those committed, by the receiver's inbox")
	line("quarantined", r.Quarantined, "of those committed"+r.codes())
	if r.Pending > 0 {
		line("pending", r.Pending, "of those committed: the drain took too long")
	}
	line("duplicates", r.Duplicates, "deliveries that the inbox absorbed: lost answers, late answers, kills")
	line("relay kills", r.RelayKills, "with SIGKILL, in the midst of work")
	b.WriteString("\n")
	line("lost", r.Lost, "committed, and neither delivered nor held by the relay")
	line("false", r.False, "delivered, and never committed")
	line("out of order", r.OutOfOrder, "delivered after a later event of the same key")
	return b.String()
}

func (r Reckoning) codes() string {
	var codes []string
	for _, code := range slices.Sorted(maps.Keys(r.Codes)) {
		codes = append(codes, fmt.Sprintf("%s %d", code, r.Codes[code]))
	}
	if len(codes) == 0 {
		return ""
	}
	return ": " + strings.Join(codes, ", ")
}
