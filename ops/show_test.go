package ops_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"testing"

	"github.com/pillarbox-dev/pillarbox/ops"
	"github.com/pillarbox-dev/pillarbox/outbox/schema"
)

// Everything that is known of an event, by its number and by its id alike, in the producer's own bytes.
func TestShow(t *testing.T) {
	onBoth(t, func(b *box) {
		b.exec(`insert into outbox_event (event_id, topic_name, partition_key, aggregate_type, aggregate_id, aggregate_version, event_type,
				event_version, schema_ref, payload, headers, dedup_key)
			values ('id-1', 'orders', 'k', 'Order', '7', 3, 'Created', 2, 'o.Created.v2', '{"n": 1.10,  "t":"<ü>"}', '{"h": "1"}', 'dd')`)
		b.cursor("waiting", 0, "orders")
		b.cursor("not-wanted", 0, "invoices")
		b.cursor("began-later", 5)
		b.cursor("d", 5)
		b.exec(`insert into outbox_delivery (destination, seq, status, receipt, attempt_count) values ('d', 1, 'PUBLISHED', '200', 1)`)
		for _, ref := range []ops.EventRef{{Seq: 1}, {EventID: "id-1"}} {
			e, err := b.Show(b.Context(), ref)
			b.must(err)
			got := fmt.Sprint(e.Seq, e.EventID, e.Topic, e.Key, e.AggregateType, e.AggregateID, e.AggregateVersion, e.EventType, e.EventVersion,
				e.SchemaRef, string(e.Payload), string(e.PayloadBytes), string(e.Headers), e.DedupKey, e.Archived, e.AvailableAt == nil)
			want := fmt.Sprint(1, "id-1", "orders", "k", "Order", "7", 3, "Created", 2,
				"o.Created.v2", `{"n": 1.10,  "t":"<ü>"}`, "", `{"h": "1"}`, "dd", false, true)
			if got != want || e.CreatedAt.IsZero() {
				b.Errorf("%v = %s\nwant %s", ref, got, want)
			}
			var deliveries string
			for _, d := range e.Deliveries {
				deliveries += fmt.Sprintf("%s %s %s %d %v; ", d.Destination, d.Status, d.Receipt, d.Attempts, d.Version == "")
			}
			if want := "d PUBLISHED 200 1 false; waiting PENDING  0 true; "; deliveries != want {
				b.Errorf("%v goes to %s, want %s", ref, deliveries, want)
			}
			if e.History == nil || len(e.History) != 0 {
				b.Errorf("history = %v, want an empty one", e.History)
			}
		}
	})
}

func TestShowWhatIsNotJSON(t *testing.T) {
	onBoth(t, func(b *box) {
		b.exec(`insert into outbox_event (topic_name, event_type, payload_bytes) values ('t', 'T', ` + b.sql(`'\x00ff'`, `x'00ff'`) + `)`)
		b.exec(`insert into outbox_event (topic_name, event_type) values ('t', 'T')`)
		e, err := b.Show(b.Context(), ops.EventRef{Seq: 1})
		b.must(err)
		if string(e.PayloadBytes) != "\x00\xff" || e.Payload != nil {
			b.Errorf("payload = %q, %q", e.Payload, e.PayloadBytes)
		}
		e, err = b.Show(b.Context(), ops.EventRef{Seq: 2})
		b.must(err)
		text, err := json.Marshal(e)
		b.must(err)
		if e.PayloadBytes != nil || e.Payload != nil || !json.Valid(text) {
			b.Errorf("tombstone = %s", text)
		}
	})
}

// Events that retention has moved are found in the archive, and can no longer be acted upon.
func TestShowTheArchive(t *testing.T) {
	onBoth(t, func(b *box) {
		b.events(2, "t", 0)
		b.cursor("d", 2)
		b.deliveries(2, "PUBLISHED", 1)
		b.exec("insert into outbox_event_archive select * from outbox_event where seq = 1")
		b.exec("insert into outbox_delivery_archive select * from outbox_delivery where seq = 1")
		b.exec("delete from outbox_event where seq = 1")
		b.exec("delete from outbox_delivery where seq = 1")
		e, err := b.Show(b.Context(), ops.EventRef{Seq: 1})
		b.must(err)
		if !e.Archived || len(e.Deliveries) != 1 || e.Deliveries[0].Status != "PUBLISHED" || e.Deliveries[0].Destination != "d" ||
			e.Deliveries[0].Version != "" || e.Deliveries[0].PublishedAt == nil || e.Deliveries[0].EventID != e.EventID {
			b.Errorf("archived event = %+v", e)
		}
		again, err := b.Show(b.Context(), ops.EventRef{EventID: e.EventID})
		if err != nil || again.Seq != 1 || !again.Archived {
			b.Errorf("by its id: %+v, %v", again, err)
		}
	})
}

func TestShowWhatTurnedVisibleInAGap(t *testing.T) {
	b := newBox(t, schema.Postgres)
	b.events(3, "t", 0)
	b.cursor("d", 3)
	b.exec(`update outbox_cursor set gaps = '{[2,3)}'`)
	for seq, want := range []int{1: 0, 2: 1, 3: 0} {
		if seq == 0 {
			continue
		}
		e, err := b.Show(t.Context(), ops.EventRef{Seq: int64(seq)})
		b.must(err)
		if len(e.Deliveries) != want {
			t.Errorf("event %d goes to %+v, want %d destinations", seq, e.Deliveries, want)
		}
	}
}

func TestShowRefuses(t *testing.T) {
	onBoth(t, func(b *box) {
		for _, tt := range []struct {
			ref  ops.EventRef
			want string
		}{
			{ops.EventRef{Seq: 5}, "show event 5: not found"},
			{ops.EventRef{EventID: "x"}, "show event x: not found"},
			{ops.EventRef{}, "show event : no event is named: give its number or its id"},
		} {
			_, err := b.Show(b.Context(), tt.ref)
			if err == nil || err.Error() != tt.want {
				b.Errorf("%v: %v, want %s", tt.ref, err, tt.want)
			}
			if tt.ref != (ops.EventRef{}) && !errors.Is(err, ops.ErrNotFound) {
				b.Errorf("%v is not ErrNotFound", err)
			}
		}
	})
}
