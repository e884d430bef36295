package kafka

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/pillarbox-dev/pillarbox/internal/kafkatest"
	"github.com/pillarbox-dev/pillarbox/relay"
)

func write(t *testing.T, name, text string) {
	t.Helper()
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// A credential that is refused pauses, is never shown, and is read again for the next connection.
func TestCredentialIsReadAgain(t *testing.T) {
	cluster := kafkatest.Shared(t)
	if err := cluster.AddUser(t.Context(), "relay", "right"); err != nil {
		t.Fatal(err)
	}
	topic := cluster.Topic(t, 1)
	token := func(subject string) string {
		encode := func(text string) string { return base64.RawURLEncoding.EncodeToString([]byte(text)) }
		return encode(`{"alg":"none"}`) + "." + encode(fmt.Sprintf(`{"sub":%q,"iat":%d,"exp":%d}`, subject,
			time.Now().Unix(), time.Now().Add(time.Hour).Unix())) + "."
	}
	for _, mechanism := range []Mechanism{Plain, ScramSHA256, ScramSHA512, OAuthBearer} {
		t.Run(string(mechanism), func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "credential")
			right := "right\n"
			d := newDestination(t, []string{cluster.Brokers[0].SecuredAddr}, func(c *Config) {
				c.SASL = &SASL{Mechanism: mechanism, User: "relay", PasswordFile: file}
				if mechanism == OAuthBearer {
					c.SASL = &SASL{Mechanism: mechanism, TokenFile: file}
					right = token("relay")
				}
			})
			event := relay.Event{Topic: topic, Key: "k", Payload: []byte(`1`)}
			for _, step := range []struct {
				credential string // "": no file
				code       string // "": published
			}{{"", CodeConfig}, {"\n", CodeConfig}, {"hush-wrong", CodeAuth}, {right, ""}} {
				if step.credential != "" {
					write(t, file, step.credential)
				}
				kind := relay.Unavailable
				if step.code == "" {
					kind = relay.Published
				}
				for _, o := range deliver(t, d, delivery(event), delivery(event)) {
					wantOutcome(t, "with "+step.credential, o, kind, step.code)
					if o.Pause != (kind == relay.Unavailable) {
						t.Errorf("%s: pause is %v", o.Code, o.Pause)
					}
					if strings.Contains(o.Message, "hush-wrong") {
						t.Errorf("the credential is shown: %s", o.Message)
					}
				}
				if problems := d.Check(t.Context()); (len(problems) == 0) != (step.code == "") {
					t.Errorf("with %q: Check says %v", step.credential, problems)
				}
			}
		})
	}
}

func TestTLS(t *testing.T) {
	dir := t.TempDir()
	certificate := selfSigned(t, filepath.Join(dir, "ca.pem"))
	selfSigned(t, filepath.Join(dir, "other.pem"))
	write(t, filepath.Join(dir, "empty.pem"), "nothing")
	c := fake(t, kfake.TLS(&tls.Config{Certificates: []tls.Certificate{certificate}}))
	event := relay.Event{Topic: "t", Key: "k", Payload: []byte(`1`)}
	for _, test := range []struct{ ca, code string }{
		{"ca.pem", ""}, {"other.pem", CodeTLS}, {"empty.pem", CodeConfig}, {"missing.pem", CodeConfig},
	} {
		d := newDestination(t, c.ListenAddrs(), func(c *Config) { c.TLS = &TLS{CAFile: filepath.Join(dir, test.ca)} })
		kind := relay.Unavailable
		if test.code == "" {
			kind = relay.Published
		}
		wantAll(t, deliver(t, d, delivery(event)), kind, test.code)
	}
}

// selfSigned makes a certificate for 127.0.0.1 and writes it as PEM.
func selfSigned(t *testing.T, name string) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	write(t, name, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})))
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

func TestCheck(t *testing.T) {
	c := fake(t)
	for _, test := range []struct {
		name  string
		topic string
		want  string // "": fine
	}{
		{"any topic", "", ""}, {"a topic that is there", "t", ""}, {"a topic that is not", "missing", CodeUnknownTopic},
	} {
		d := newDestination(t, c.ListenAddrs(), func(c *Config) { c.Topic = test.topic })
		problems := d.Check(t.Context())
		if (len(problems) > 0) != (test.want != "") || len(problems) > 0 && !strings.Contains(problems[0].Error(), test.want) {
			t.Errorf("%s: got %v, want %q", test.name, problems, test.want)
		}
	}
	problems := newDestination(t, []string{"127.0.0.1:1"}).Check(t.Context())
	if len(problems) != 1 || !strings.Contains(problems[0].Error(), CodeDial) {
		t.Errorf("nobody there: got %v", problems)
	}
}
