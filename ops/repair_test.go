package ops_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/pillarbox-dev/pillarbox/contract"
	"github.com/pillarbox-dev/pillarbox/ops"
	"github.com/pillarbox-dev/pillarbox/relay"
)

// The event becomes what the operator says, byte for byte, the delivery goes again, and the log keeps what it was.
func TestRepair(t *testing.T) {
	onBoth(t, func(b *box) {
		b.cursor("d", 100)
		const old = `"payload":{"amount":1e400,"note":"<b>"}`
		for _, tt := range []struct {
			name                    string
			repair                  ops.Repair
			payload, bytes, headers string
			after                   string
		}{
			{"a payload", ops.Repair{Payload: []byte("{\"amount\":  9007199254740993}\n")},
				"{\"amount\":  9007199254740993}\n", "", `{"h":"1"}`, `"payload":{"amount":9007199254740993},"headers":{"h":"1"}}`},
			{"headers", ops.Repair{Headers: map[string]string{"a": "<>", "b": "ü"}},
				`{"amount": 1e400,  "note":"<b>"}`, "", `{"a":"<>","b":"ü"}`, old + `,"headers":{"a":"<>","b":"ü"}}`},
			{"no headers", ops.Repair{Headers: map[string]string{}},
				`{"amount": 1e400,  "note":"<b>"}`, "", `{}`, old + `,"headers":{}}`},
			{"bytes", ops.Repair{PayloadBytes: []byte{0, 255}, Headers: map[string]string{"t": "avro"}},
				"", "\x00\xff", `{"t":"avro"}`, `"payload_bytes":"AP8=","headers":{"t":"avro"}}`},
			{"nothing but an empty message", ops.Repair{PayloadBytes: []byte{}}, "", "", `{"h":"1"}`, `"headers":{"h":"1"}}`},
		} {
			seen := b.broken("k", "QUARANTINED", true)
			got, err := b.Repair(b.Context(), target(seen), tt.repair, ops.Action{By: "ann", Reason: "a typing error"})
			b.must(err)
			if row, want := b.row(seen.Seq), `PENDING/0 key k endpoint "" - due`; row != want || got.Status != relay.StatusPending {
				b.Errorf("%s: row %s, want %s", tt.name, row, want)
			}
			e, err := b.Show(b.Context(), ops.EventRef{Seq: seen.Seq})
			b.must(err)
			if string(e.Payload) != tt.payload || string(e.PayloadBytes) != tt.bytes || string(e.Headers) != tt.headers {
				b.Errorf("%s: payload %q, bytes %q, headers %s", tt.name, e.Payload, e.PayloadBytes, e.Headers)
			}
			h := e.History[0]
			told := fmt.Sprintf("%s %s %s %s %s", h.Operator, h.Action, h.Reason, h.Before, h.After)
			want := `ann repair a typing error {"status":"QUARANTINED","attempt_count":3,"last_error_code":"HTTP_422",` +
				`"last_error_message":"amount is missing",` + old + `,"headers":{"h":"1"}} {"status":"PENDING","attempt_count":0,` + tt.after
			if told != want || len(e.History) != 1 {
				b.Errorf("%s: recorded %s\nwant %s", tt.name, told, want)
			}
		}
	})
}

func TestRepairRefuses(t *testing.T) {
	schemas, err := contract.Load(contract.Config{FS: fstest.MapFS{"o.v1.json": {Data: []byte(
		`{"type": "object", "required": ["amount"], "properties": {"amount": {"type": "integer"}}}`)}}})
	if err != nil {
		t.Fatal(err)
	}
	onBoth(t, func(b *box) {
		b.cursor("d", 100)
		seen := b.broken("k", "QUARANTINED", true)
		b.exec(`update outbox_event set schema_ref = 'o.v1'`)
		o := b.WithContract(schemas.Judge)
		for _, tt := range []struct {
			name   string
			repair ops.Repair
			want   []string
		}{
			{"nothing", ops.Repair{}, []string{"nothing is to be repaired"}},
			{"both", ops.Repair{Payload: []byte("{}"), PayloadBytes: []byte("x"), Headers: map[string]string{"a b": "\n", "c": "\r"}},
				[]string{"PayloadBytes is set beside Payload", `Headers["a b"] has a name`, `Headers["c"] has a value with a control character`}},
			{"no JSON", ops.Repair{Payload: []byte(`{"amount": }`)}, []string{"Payload is not valid JSON from byte 12 on"}},
			{"an empty text", ops.Repair{Payload: []byte{}}, []string{"Payload is not valid JSON"}},
			{"too much", ops.Repair{PayloadBytes: make([]byte, 1<<20+1)}, []string{"has 1048577 bytes, more than the limit of 1048576"}},
			{"what it says already", ops.Repair{Payload: []byte(`{"amount": 1e400,  "note":"<b>"}`), Headers: map[string]string{"h": "1"}},
				[]string{"what the event says already", "retry it"}},
			{"a breach of the contract", ops.Repair{Payload: []byte(`{"amount": "1"}`)},
				[]string{"SCHEMA_INVALID", "/amount must be integer"}},
			{"bytes against a contract", ops.Repair{PayloadBytes: []byte("x")}, []string{"SCHEMA_INVALID", "is not JSON"}},
		} {
			_, err := o.Repair(b.Context(), target(seen), tt.repair, ops.Action{By: "ann"})
			var refused *ops.RefusedError
			if !errors.As(err, &refused) {
				b.Errorf("%s: %v, want a RefusedError", tt.name, err)
				continue
			}
			for _, want := range tt.want {
				if !strings.Contains(err.Error(), want) {
					b.Errorf("%s: %v lacks %q", tt.name, err, want)
				}
			}
		}
		if got := b.actions(); len(got) != 0 || b.newest().Version != seen.Version {
			b.Errorf("recorded %q, want nothing", got)
		}
		if _, err := o.Repair(b.Context(), target(seen), ops.Repair{Payload: []byte(`{"amount": 1}`)}, ops.Action{By: "ann"}); err != nil {
			b.Errorf("what keeps the contract: %v", err)
		}
	})
}

// An event that is bigger than the limit may stay as big as it is.
func TestRepairOfABigEvent(t *testing.T) {
	onBoth(t, func(b *box) {
		b.cursor("d", 100)
		seen := b.broken("k", "QUARANTINED", true)
		big := `"` + strings.Repeat("x", 2<<20) + `"`
		b.exec(`update outbox_event set payload = `+b.sql("$1::text::json", "?1"), big)
		_, err := b.Repair(b.Context(), target(seen), ops.Repair{Payload: []byte(strings.Replace(big, "x", "y", 1))}, ops.Action{By: "ann"})
		if err != nil {
			b.Error(err)
		}
	})
}
