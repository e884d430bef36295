package kafka

import (
	"strings"
	"testing"
	"time"
)

func TestProblemsComeAtOnce(t *testing.T) {
	_, err := New(Config{
		Brokers: []string{"host:port", "http://x", "ok"}, Topic: "a b", Topics: map[string]string{"x": ".."}, MaxBatch: -1, BatchSize: 5,
		MaxRecordSize: 1, Linger: time.Hour, Compression: "zip", RequestTimeout: 1, TLS: &TLS{CertFile: "c"},
		SASL: &SASL{Mechanism: "KERBEROS"},
	})
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{`"host:port"`, "http://x", `topic "a b"`, `topic_map of "x": topic ".."`, "max_batch -1",
		"batch_size 5", "max_record_size 1",
		"linger 1h", "compression is", "request_timeout", "tls.cert_file", "sasl.mechanism"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error does not mention %s:\n%v", want, err)
		}
	}
	if strings.Contains(err.Error(), `"ok`) {
		t.Errorf("a good broker is a problem: %v", err)
	}
	if _, err := New(Config{}); err == nil || !strings.Contains(err.Error(), "brokers is empty") {
		t.Errorf("no brokers: got %v", err)
	}
}

// What is taken as a size can be used: a producer can be made with it.
func TestRecordSizes(t *testing.T) {
	for _, size := range []int{minSize, maxSize, maxSize + 1, 200 << 20} {
		d, err := New(Config{Brokers: []string{"host"}, MaxRecordSize: size})
		if (err == nil) != (size <= maxSize) {
			t.Errorf("%d: got %v, want sizes to %d taken", size, err, maxSize)
		}
		if err != nil {
			continue
		}
		p, err := newProducer(&d.config)
		if err != nil {
			t.Errorf("%d: %v", size, err)
			continue
		}
		p.client.Close()
	}
}

func TestSASLProblems(t *testing.T) {
	for _, test := range []struct {
		sasl SASL
		want string // "": fine
	}{
		{SASL{Mechanism: Plain, User: "u", Password: "p"}, ""},
		{SASL{Mechanism: ScramSHA256, User: "u", PasswordFile: "p"}, ""},
		{SASL{Mechanism: OAuthBearer, TokenFile: "p"}, ""},
		{SASL{Mechanism: ScramSHA512, Password: "p"}, "sasl.user"},
		{SASL{Mechanism: Plain, User: "u"}, "sasl.password"},
		{SASL{Mechanism: Plain, User: "u", Password: "p", PasswordFile: "f"}, "exactly one"},
		{SASL{Mechanism: Plain, User: "u", Password: "p", Token: "t"}, "OAUTHBEARER alone"},
		{SASL{Mechanism: OAuthBearer}, "sasl.token"},
		{SASL{Mechanism: OAuthBearer, Token: "t", User: "u"}, "not for OAUTHBEARER"},
	} {
		_, err := New(Config{Brokers: []string{"b"}, SASL: &test.sasl})
		if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
			t.Errorf("%+v: got %v, want %q", test.sasl, err, test.want)
		}
		if err != nil && strings.Contains(err.Error(), `"p"`) {
			t.Errorf("the password is in the error: %v", err)
		}
	}
}

func TestDefaultPort(t *testing.T) {
	d := newDestination(t, []string{"kafka", "kafka:1", "[::1]", "[::1]:2"})
	want := []string{"kafka:9092", "kafka:1", "[::1]:9092", "[::1]:2"}
	for i, got := range d.config.Brokers {
		if got != want[i] {
			t.Errorf("broker %d is %s, want %s", i, got, want[i])
		}
	}
}
