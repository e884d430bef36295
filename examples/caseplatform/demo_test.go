package main

import (
	"log/slog"
	"testing"

	"github.com/pillarbox-dev/pillarbox/internal/child"
	"github.com/pillarbox-dev/pillarbox/internal/pgtest"
	"github.com/pillarbox-dev/pillarbox/internal/reckon"
)

// The reckoning finds what a workflow engine forgets, makes up, or handles in the wrong order, and tells it from what is on its way.
func TestReckoningFindsIt(t *testing.T) {
	a := newAPI(t)
	d := &demo{cases: a.pool, service: &child.Process{}, client: &client{url: a.url, name: "CASE"}}
	var err error
	d.engine, err = openPool(t.Context(), pgtest.Database(t))
	must(t, err)
	t.Cleanup(d.engine.Close)
	d.flow, err = newWorkflow(t.Context(), d.engine, []string{"127.0.0.1:1"}, slog.New(slog.DiscardHandler)) // nothing is dialled
	must(t, err)
	for _, id := range []string{"CASE-good", "CASE-lost", "CASE-swapped", "CASE-pending"} {
		a.post("/cases", `{"caseId": "`+id+`"}`)
		a.post("/cases/"+id+"/accept", ``, "Idempotency-Key", id)
		d.client.note(typeSubmitted, id, 1)
		d.client.note(typeAccepted, id, 2)
	}
	// A relay says that it has published all but what is of the last case.
	_, err = a.pool.Exec(t.Context(), `insert into integration.outbox_cursor (destination, position) values ('lifecycle', 6)`)
	must(t, err)
	_, err = a.pool.Exec(t.Context(), `insert into integration.outbox_delivery (destination, seq, status, attempt_count)
		select 'lifecycle', seq, 'PUBLISHED', 1 from integration.outbox_event where seq <= 6`)
	must(t, err)
	for _, h := range []struct {
		caseID, eventType string
		version           int
	}{
		{"CASE-good", typeSubmitted, 1}, {"CASE-good", typeAccepted, 2},
		{"CASE-lost", typeSubmitted, 1},
		{"CASE-swapped", typeAccepted, 2}, {"CASE-swapped", typeSubmitted, 1},
		{"CASE-forged", typeSubmitted, 1},
	} {
		_, err = d.engine.Exec(t.Context(), writeHistory, h.caseID, h.version, h.eventType, h.caseID+h.eventType)
		must(t, err)
	}
	r, err := d.reckon(t.Context())
	must(t, err)
	want := reckon.Reckoning{Committed: 8, Delivered: 5, Lost: 1, False: 1, OutOfOrder: 1, Pending: 2}
	if r.Kept() || r.String() != want.String() || r.Pending != want.Pending {
		t.Errorf("got\n%v\nwant\n%v", r, want)
	}
}
