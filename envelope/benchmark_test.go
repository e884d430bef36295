package envelope

import (
	"strings"
	"testing"

	"github.com/pillarbox-dev/pillarbox/relay"
)

// A payload of 420 bytes, as in the project's other benchmarks.
func BenchmarkWrap(b *testing.B) {
	e := newEvent(payloadIs(`{"caseId":"CASE-1","amount":12345678901234567890,"items":[{"sku":"A-1","n":2,"price":9.90},{"sku":"B-2","n":1,"price":19.00}],` +
		`"customer":{"id":"C-77","name":"Zażółć Gęślą","tags":["a","b",null,true]},"note":"` + strings.Repeat("x", 200) + `"}`))
	for _, bench := range []struct {
		name   string
		config Config
		event  *relay.Event
	}{
		{"payload", Config{Target: Kafka}, e},
		{"payload without key", Config{Target: Kafka}, newEvent(keyless)},
		{"envelope", Config{Name: NameEnvelope, Target: Kafka, Producer: "cases"}, e},
		{"cloudevents structured", cloudEvent(Kafka, false), e},
		{"cloudevents binary", cloudEvent(HTTP, true), e},
		{"jq", Config{Name: NameJQ, Target: Kafka, JQ: &JQ{Expression: "{id: .eventId, data: .payload}"}}, e},
		{"jq deep",
			Config{Name: NameJQ, Target: Kafka,
				JQ: &JQ{Expression: ".payload | .items |= map(.price += 1) | .customer.name |= ascii_downcase"}}, e},
		{"debezium text", Config{Name: NameDebezium, Target: Kafka}, e},
		{"debezium with schema", Config{Name: NameDebezium, Target: Kafka,
			Debezium: &Debezium{Format: FormatJSONSchema, KeyFormat: FormatJSONSchema}}, e},
		{"debezium expanded", Config{Name: NameDebezium, Target: Kafka,
			Debezium: &Debezium{Format: FormatJSON, ExpandPayload: true}}, e},
	} {
		b.Run(bench.name, func(b *testing.B) {
			wraps := newEnvelope(b, bench.config)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := wraps.Wrap(bench.event); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
