package config

import (
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/pillarbox-dev/pillarbox/destination/kafka"
	"github.com/pillarbox-dev/pillarbox/relay"
)

// Each key reaches the destination.
func TestKafkaConfig(t *testing.T) {
	c, err := Parse("f.yaml", []byte(`
database: {url: sqlite:data/app.db}
destinations:
  k:
    kafka:
      brokers: [a, "b:1"]
      topic: prod.{topic}
      topic_map: {orders: o}
      envelope: {name: debezium, debezium: {topic: "out.$${routedByValue}"}}
      max_batch: 7
      batch_size: 32KiB
      max_record_size: 2MiB
      linger: 10ms
      compression: lz4
      request_timeout: 5s
      client_id: me
      tls: {ca_file: ca, cert_file: cert, key_file: key, server_name: name}
      sasl: {mechanism: PLAIN, user: u, password: "${PASSWORD}"}
`), func(name string) (string, bool) { return "hush", name == "PASSWORD" })
	if err != nil {
		t.Fatal(err)
	}
	got := c.Destinations["k"].Kafka.Config()
	message, err := got.Envelope.Wrap(&relay.Event{ID: "1", AggregateType: "case", AggregateID: "c"})
	if err != nil || message.Topic != "out.case" {
		t.Errorf("the envelope made %+v, %v", message, err)
	}
	got.Envelope = nil
	want := kafka.Config{
		Brokers: []string{"a", "b:1"}, Topic: "prod.{topic}", Topics: map[string]string{"orders": "o"}, MaxBatch: 7, BatchSize: 32 << 10,
		MaxRecordSize: 2 << 20, Linger: 10 * time.Millisecond, Compression: "lz4", RequestTimeout: 5 * time.Second, ClientID: "me",
		TLS:  &kafka.TLS{CAFile: "ca", CertFile: "cert", KeyFile: "key", ServerName: "name"},
		SASL: &kafka.SASL{Mechanism: kafka.Plain, User: "u", Password: "hush"},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	if strings.Contains(c.String(), "hush") {
		t.Errorf("the password is printed:\n%s", c)
	}
}

func TestKafkaWithTheSystemsTrust(t *testing.T) {
	c := parse(t, "database: {url: sqlite:a.db}\ndestinations:\n  k:\n    kafka:\n      brokers: [a]\n      tls:\n")
	if got := c.Destinations["k"].Kafka.Config().TLS; got == nil || *got != (kafka.TLS{}) {
		t.Errorf("tls = %+v, want it on, without files", got)
	}
}

func TestEnvelopeOfHTTP(t *testing.T) {
	c := parse(t, `
database: {url: sqlite:a.db}
destinations:
  h:
    http:
      url: https://a.example
      envelope:
        name: jq
        jq:
          expression: |
            {id: .eventId}
            | .x = "${NOT_A_VARIABLE}"
`)
	message, err := c.Destinations["h"].HTTP.Config().Envelope.Wrap(&relay.Event{ID: "1", Payload: []byte(`1`)})
	if err != nil || string(message.Value) != `{"id":"1","x":"${NOT_A_VARIABLE}"}` {
		t.Errorf("got %s, %v", message.Value, err)
	}
}

func TestKafkaProblems(t *testing.T) {
	const head = "database: {url: sqlite:a.db}\n"
	for _, test := range []struct{ text, want string }{
		{"destinations: {k: {kafka: {}}}", "f.yaml:2:20: destinations.k.kafka.brokers is missing: name at least one: brokers: [kafka:9092]"},
		{"destinations: {k: {kafka: {brokers: [a], acks: 1}}}", `unknown key "acks" in destinations.k.kafka`},
		{"destinations: {k: {kafka: {brokers: [a]}, http: {url: https://a.example}}}", "destinations.k goes to http and to kafka"},
		{"destinations: {k: {kafka: {brokers: ['http://a']}}}", "destinations.k.kafka: brokers: \"http://a"},
		{"destinations: {k: {kafka: {brokers: [a], batch_size: 2MiB}}}", "f.yaml:2:54: destinations.k.kafka: batch_size 2097152 is outside"},
		{"destinations: {k: {kafka: {brokers: [a], topic: a b}}}", "f.yaml:2:49: destinations.k.kafka: topic \"a b\""},
		{"destinations: {k: {kafka: {brokers: [a], sasl: {mechanism: PLAIN, user: u, password: hush}}}}", "is written into the file"},
		{"destinations: {k: {kafka: {brokers: [a], sasl: {mechanism: PLAIN, user: u}}}}", "sasl.password_file or sasl.password"},
		{"destinations: {k: {kafka: {brokers: [a], envelope: {name: cloudevents}}}}", "destinations.k.kafka.envelope: cloudevents.source is missing"},
		{"destinations: {k: {kafka: {brokers: [a], envelope: {name: payload, producer: x}}}}", "f.yaml:2:78: destinations.k.kafka.envelope: producer is set"},
		{"destinations: {k: {kafka: {brokers: [a], envelope: {}}}}", "destinations.k.kafka.envelope.name is missing"},
		{"destinations: {k: {kafka: {brokers: [a]}, timeout: 60s}}", "f.yaml:2:52: destinations.k: timeout 1m0s does not fit in the lease"},
		{"destinations: {k: {kafka: {brokers: [a]}, max_in_flight: 100}}", "max_in_flight 100 is less than one batch of 4000"},
		{"destinations: {k: {kafka: {brokers: [a], topic: a b}, timeout: 60s}}", "destinations.k: timeout 1m0s does not fit in the lease"},
		{"destinations: {h: {http: {url: https://a.example, envelope: {name: debezium}}}}", "debezium makes records of Kafka"},
	} {
		_, err := Parse("f.yaml", []byte(head+test.text), noVariables)
		var problems Problems
		if !errors.As(err, &problems) || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: got\n%v\nwant %s", test.text, err, test.want)
		}
		if err != nil && strings.Contains(err.Error(), "hush") {
			t.Errorf("the secret is shown: %v", err)
		}
	}
}
