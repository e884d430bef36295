package demo

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

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

// Kept tells whether every promise was kept.
func (r Reckoning) Kept() bool { return r.Lost == 0 && r.False == 0 && r.OutOfOrder == 0 }

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

// kept is what the relay's side says of an event.
type kept struct{ status, code string }

// readLedger gets the relay's view of every event that is or was its to deliver.
const readLedger = `select event_id, status, coalesce(last_error_code, '') from outbox_status where destination = ?1`

func (d *demo) ledger(ctx context.Context) (map[string]kept, error) {
	rows, err := d.service.db.QueryContext(ctx, readLedger, destination)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	all := map[string]kept{}
	for rows.Next() {
		var id string
		var k kept
		if err := rows.Scan(&id, &k.status, &k.code); err != nil {
			return nil, err
		}
		all[id] = k
	}
	return all, rows.Err()
}

// reckon holds the three records against each other. While the relay runs, the ledger is read before the inbox: what is
// published by then has been handled by then.
func (d *demo) reckon(ctx context.Context) (Reckoning, error) {
	committed, rolledBack := d.service.record()
	ledger, err := d.ledger(ctx)
	if err != nil {
		return Reckoning{}, fmt.Errorf("read the ledger: %w", err)
	}
	inbox, err := d.receiver.inbox(ctx)
	if err != nil {
		return Reckoning{}, fmt.Errorf("read the inbox: %w", err)
	}
	r := reckon(committed, inbox, ledger)
	r.RolledBack = len(rolledBack)
	r.RelayKills = d.relay.killed()
	r.Seconds = float64(time.Since(d.started).Milliseconds()) / 1000
	return r, nil
}

func reckon(committed []written, inbox []handled, ledger map[string]kept) Reckoning {
	r := Reckoning{Committed: len(committed), Codes: map[string]int{}}
	place := map[string]int{} // of an event in the record
	for i, w := range committed {
		place[w.id] = i
	}
	delivered := map[string]bool{}
	last := map[string]int{} // the latest place of each order
	for _, h := range inbox {
		r.Duplicates += h.times - 1
		at, real := place[h.id]
		if !real {
			r.False++
			continue
		}
		r.Delivered++
		delivered[h.id] = true
		if before, any := last[h.order]; any && at < before {
			r.OutOfOrder++
			continue
		}
		last[h.order] = at
	}
	for _, w := range committed {
		if delivered[w.id] {
			continue
		}
		switch k := ledger[w.id]; k.status {
		case "QUARANTINED":
			r.Quarantined++
			r.Codes[k.code]++
		case "PENDING", "PUBLISHING", "FAILED":
			r.Pending++
		default: // published, it says, or it has never heard of it
			r.Lost++
		}
	}
	return r
}
