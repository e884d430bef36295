package dashboard

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/pillarbox-dev/pillarbox/dashboard/access"
	"github.com/pillarbox-dev/pillarbox/dashboard/mask"
	"github.com/pillarbox-dev/pillarbox/ops"
	"github.com/pillarbox-dev/pillarbox/relay"
)

// maxShown is how much of a payload a page shows. A longer one is not repaired on a page either.
const maxShown = 256 << 10

// eventPage is one event, as the one who looks may see it.
type eventPage struct {
	ops.EventDetail
	Payload payloadView
	Headers []header
	Cards   []deliveryCard
	History []historyEntry
	Masked  bool
}

// Title names the page.
func (e *eventPage) Title() string { return fmt.Sprintf("Event %d", e.Seq) }

// payloadView is a payload made ready to be read.
type payloadView struct {
	Kind   string // JSON, bytes or tombstone
	Pretty string
	Raw    string // "": the same as Pretty
	Size   int
	Cut    bool
}

type header struct{ Name, Value string }

// deliveryCard is a delivery with what can be done to it.
type deliveryCard struct {
	ops.Delivery
	CanRetry, CanDiscard, CanRepair bool
	Repair                          repairForm
}

// repairForm is what the fields of a repair hold.
type repairForm struct {
	Payload, Headers, Reason string
	Bytes                    bool // the payload is none that a field could hold
	Open                     bool
	Problem                  string
}

type historyEntry struct {
	ops.LogEntry
	Before, After string
}

func (d *Dashboard) event(r *http.Request) (any, error) {
	detail, err := d.config.Ops.Show(r.Context(), parseRef(r.PathValue("ref")))
	if err != nil {
		return nil, err
	}
	return d.eventPage(detail, d.maskFor(access.Who(r))), nil
}

// parseRef takes a number or an id.
func parseRef(text string) ops.EventRef {
	if seq, err := strconv.ParseInt(text, 10, 64); err == nil && seq > 0 {
		return ops.EventRef{Seq: seq}
	}
	return ops.EventRef{EventID: text}
}

// maskFor is what is hidden from somebody.
func (d *Dashboard) maskFor(who access.Identity) *mask.Mask {
	if who.MayOperate() && !d.config.MaskOperators {
		return nil
	}
	return d.config.Mask
}

func (d *Dashboard) eventPage(detail ops.EventDetail, m *mask.Mask) *eventPage {
	p := &eventPage{EventDetail: detail, Payload: viewPayload(detail, m), Headers: viewHeaders(detail.Headers, m), Masked: m.Any()}
	for _, delivery := range detail.Deliveries {
		p.Cards = append(p.Cards, card(delivery, detail, m))
	}
	for _, entry := range detail.History {
		p.History = append(p.History, historyOf(entry, m))
	}
	return p
}

// historyOf hides what a repair has kept of payloads and headers. Bytes cannot be looked into, so they are hidden as a whole.
func historyOf(entry ops.LogEntry, m *mask.Mask) historyEntry {
	if m.Any() {
		m = m.With("payload_bytes")
	}
	return historyEntry{entry, pretty(m.JSON(entry.Before)), pretty(m.JSON(entry.After))}
}

func card(delivery ops.Delivery, detail ops.EventDetail, m *mask.Mask) deliveryCard {
	c := deliveryCard{Delivery: delivery}
	if delivery.Version == "" || detail.Archived {
		return c
	}
	open := delivery.Status == relay.StatusFailed || delivery.Status == relay.StatusQuarantined
	c.CanRetry, c.CanRepair = open, open && len(detail.Payload)+len(detail.PayloadBytes) <= maxShown
	c.CanDiscard = open || delivery.Status == relay.StatusPending
	if c.CanRepair {
		c.Repair = formOf(detail, m)
	}
	return c
}

// formOf fills the fields of a repair with what the event is now.
func formOf(detail ops.EventDetail, m *mask.Mask) repairForm {
	return repairForm{
		Payload: pretty(m.JSON(detail.Payload)), Headers: pretty(maskHeaders(detail.Headers, m)), Bytes: detail.PayloadBytes != nil,
	}
}

func viewPayload(detail ops.EventDetail, m *mask.Mask) payloadView {
	switch {
	case detail.PayloadBytes != nil:
		shown := m.Bytes(detail.PayloadBytes)
		v := payloadView{Kind: "bytes", Size: len(detail.PayloadBytes), Cut: len(shown) > maxShown/8}
		v.Pretty = hex.Dump(shown[:min(len(shown), maxShown/8)])
		return v
	case detail.Payload == nil:
		return payloadView{Kind: "tombstone"}
	}
	shown := m.JSON(detail.Payload)
	v := payloadView{Kind: "JSON", Size: len(detail.Payload)}
	if len(shown) > maxShown {
		v.Raw, v.Cut = strings.ToValidUTF8(string(shown[:maxShown]), "�"), true
		return v
	}
	v.Pretty, v.Raw = pretty(shown), string(shown)
	if v.Pretty == v.Raw {
		v.Raw = ""
	}
	return v
}

// pretty indents JSON and leaves numbers and texts as they are written.
func pretty(document json.RawMessage) string {
	if len(document) == 0 {
		return ""
	}
	var out bytes.Buffer
	if json.Indent(&out, document, "", "  ") != nil {
		return string(document)
	}
	return out.String()
}

func viewHeaders(document json.RawMessage, m *mask.Mask) (headers []header) {
	var values map[string]string
	if len(document) == 0 || json.Unmarshal(document, &values) != nil {
		return nil
	}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		headers = append(headers, header{name, m.Header(name, values[name])})
	}
	return headers
}

func maskHeaders(document json.RawMessage, m *mask.Mask) json.RawMessage {
	if !m.Any() {
		return document
	}
	return m.JSON(document) // a flat object: its fields are the headers
}
