package api

import (
	"encoding/json"
	"strconv"

	"github.com/pillarbox-dev/pillarbox/dashboard/mask"
	"github.com/pillarbox-dev/pillarbox/ops"
)

func (a *api) listEvents(c *call) (any, error) {
	q := c.query()
	filter, page := q.filter(), q.page()
	if err := q.done(); err != nil {
		return nil, err
	}
	return a.Ops.List(c.Context(), filter, page)
}

// event is an event as it is shown: what is masked is not in it.
type event struct {
	ops.EventDetail
	Masked bool `json:"masked"`
}

// showEvent shows the event of a number or of an id. What has digits alone is a number, unless by=id says otherwise.
func (a *api) showEvent(c *call) (any, error) {
	q := c.query()
	by := q.word("by", "seq", "id")
	if err := q.done(); err != nil {
		return nil, err
	}
	ref := ops.EventRef{EventID: c.PathValue("ref")}
	if seq, err := strconv.ParseInt(ref.EventID, 10, 64); err == nil && seq > 0 && by != "id" {
		ref = ops.EventRef{Seq: seq}
	} else if by == "seq" {
		return nil, ops.ErrNotFound
	}
	detail, err := a.Ops.Show(c.Context(), ref)
	if err != nil {
		return nil, err
	}
	return masked(detail, a.maskFor(c.who)), nil
}

func masked(detail ops.EventDetail, m *mask.Mask) event {
	detail.Payload, detail.PayloadBytes = m.JSON(detail.Payload), m.Bytes(detail.PayloadBytes)
	detail.Headers = m.JSON(detail.Headers)
	detail.History = shownLog(detail.History, m)
	return event{EventDetail: detail, Masked: m.Any()}
}

// shownLog hides what a repair has kept of payloads and headers. Bytes cannot be looked into, so they are hidden as a whole. What
// there was nothing of before or after is left out.
func shownLog(entries []ops.LogEntry, m *mask.Mask) []ops.LogEntry {
	if m.Any() {
		m = m.With("payload_bytes")
	}
	for i := range entries {
		for _, state := range []*json.RawMessage{&entries[i].Before, &entries[i].After} {
			if *state = m.JSON(*state); string(*state) == "null" {
				*state = nil
			}
		}
	}
	return entries
}

func (a *api) listLog(c *call) (any, error) {
	q := c.query()
	filter := ops.LogFilter{
		Operator: q.text("operator"), Action: q.text("action"), Destination: q.text("destination"), Seq: q.number("seq"),
	}
	page := q.page()
	if err := q.done(); err != nil {
		return nil, err
	}
	log, err := a.Ops.Log(c.Context(), filter, page)
	log.Entries = shownLog(log.Entries, a.maskFor(c.who))
	return log, err
}
