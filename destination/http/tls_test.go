package http

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pillarbox-dev/pillarbox/relay"
)

// authority signs certificates for tests.
type authority struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
	file        string
}

func newAuthority(t testing.TB) authority {
	t.Helper()
	key := newKey(t)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test authority"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	certificate, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	a := authority{certificate: certificate, key: key, file: filepath.Join(t.TempDir(), "ca.pem")}
	write(t, a.file, string(pemOf("CERTIFICATE", der)))
	return a
}

func newKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func pemOf(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

// issue makes a certificate and writes it and its key into files.
func (a authority) issue(t testing.TB, changes ...func(*x509.Certificate)) (pair tls.Certificate, certFile, keyFile string) {
	t.Helper()
	key := newKey(t)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: "leaf"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	for _, change := range changes {
		change(template)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.certificate, &key.PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	certFile = write(t, filepath.Join(folder, "cert.pem"), string(pemOf("CERTIFICATE", der)))
	keyFile = write(t, filepath.Join(folder, "key.pem"), string(pemOf("PRIVATE KEY", keyDER)))
	if pair, err = tls.LoadX509KeyPair(certFile, keyFile); err != nil {
		t.Fatal(err)
	}
	return pair, certFile, keyFile
}

func (a authority) pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(a.certificate)
	return pool
}

// caOf writes the certificate of a test server into a file.
func caOf(t testing.TB, server *httptest.Server) string {
	t.Helper()
	return write(t, filepath.Join(t.TempDir(), "ca.pem"), string(pemOf("CERTIFICATE", server.Certificate().Raw)))
}

func newTLSServer(t testing.TB, config *tls.Config, handler http.HandlerFunc) *httptest.Server {
	t.Helper()
	server := httptest.NewUnstartedServer(handler)
	server.TLS = config
	server.Config.ErrorLog = discardLog()
	server.StartTLS()
	t.Cleanup(server.Close)
	return server
}

// Every fault of a certificate pauses the endpoint, and Check finds each of them before a delivery does.
func TestCertificates(t *testing.T) {
	ours, theirs := newAuthority(t), newAuthority(t)
	good, _, _ := ours.issue(t)
	expired, _, _ := ours.issue(t, func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Minute) })
	wrongHost, _, _ := ours.issue(t, func(c *x509.Certificate) { c.IPAddresses, c.DNSNames = nil, []string{"elsewhere.example"} })
	unknown, _, _ := theirs.issue(t)
	_, clientCert, clientKey := ours.issue(t)
	_, strangerCert, strangerKey := theirs.issue(t)
	wantsClient := func(version uint16) *tls.Config {
		return &tls.Config{
			Certificates: []tls.Certificate{good}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: ours.pool(),
			MinVersion: version, MaxVersion: version,
		}
	}
	serves := func(c tls.Certificate) *tls.Config { return &tls.Config{Certificates: []tls.Certificate{c}} }
	client := TLS{CAFile: ours.file, CertFile: clientCert, KeyFile: clientKey}
	stranger := TLS{CAFile: ours.file, CertFile: strangerCert, KeyFile: strangerKey}
	for name, tt := range map[string]struct {
		server *tls.Config
		client TLS
		fault  string // "": none
	}{
		"good":                          {serves(good), TLS{CAFile: ours.file}, ""},
		"unknown CA":                    {serves(unknown), TLS{CAFile: ours.file}, "unknown authority"},
		"unknown to the system":         {serves(good), TLS{}, "unknown authority"},
		"expired":                       {serves(expired), TLS{CAFile: ours.file}, "expired"},
		"wrong host":                    {serves(wrongHost), TLS{CAFile: ours.file}, "doesn't contain any IP SANs"},
		"client certificate":            {wantsClient(tls.VersionTLS13), client, ""},
		"client certificate, 1.2":       {wantsClient(tls.VersionTLS12), client, ""},
		"no client certificate":         {wantsClient(tls.VersionTLS13), TLS{CAFile: ours.file}, "certificate required"},
		"no client certificate, 1.2":    {wantsClient(tls.VersionTLS12), TLS{CAFile: ours.file}, "handshake failure"},
		"client certificate refused":    {wantsClient(tls.VersionTLS13), stranger, "refuses our certificate"},
		"client cert. refused, TLS 1.2": {wantsClient(tls.VersionTLS12), stranger, "refuses our certificate"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := newTLSServer(t, tt.server, status(200))
			d := newDestination(t, server.URL, func(c *Config) { c.TLS = tt.client })
			want := relay.Outcome{Kind: relay.Published, Receipt: "200"}
			if tt.fault != "" {
				want = relay.Outcome{Kind: relay.Unavailable, Code: CodeTLS, Message: tt.fault}
				want.Pause = tt.fault != "handshake failure" // with TLS 1.2 it may be anything else as well
			}
			problems := d.Check(t.Context())
			switch {
			case tt.fault == "" && len(problems) > 0:
				t.Errorf("Check = %v, want nothing", problems)
			case tt.fault != "" && (len(problems) != 1 || !strings.Contains(problems[0].Error(), tt.fault)):
				t.Errorf("Check = %v, want one with %q", problems, tt.fault)
			}
			same(t, deliver(t, d, newEvent()), want)
		})
	}
}

// New TLS files are taken up without a restart; connections are kept as long as the files stay.
func TestCertificateRotation(t *testing.T) {
	ours, theirs := newAuthority(t), newAuthority(t)
	first, _, _ := ours.issue(t)
	second, _, _ := theirs.issue(t)
	connections := newConnectionCount()
	server := httptest.NewUnstartedServer(status(200))
	var serves atomic.Pointer[tls.Config]
	serves.Store(&tls.Config{Certificates: []tls.Certificate{first}})
	server.TLS = &tls.Config{GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return serves.Load(), nil }}
	server.Config.ConnState = connections.note
	server.Config.ErrorLog = discardLog()
	server.StartTLS()
	t.Cleanup(server.Close)

	ca := filepath.Join(t.TempDir(), "ca.pem")
	copyFile(t, ours.file, ca)
	d := newDestination(t, server.URL, func(c *Config) { c.TLS.CAFile = ca })
	ok := relay.Outcome{Kind: relay.Published, Receipt: "200"}
	for range 5 {
		same(t, deliver(t, d, newEvent()), ok)
	}
	if n := connections.opened(); n != 1 {
		t.Errorf("%d connections, want 1", n)
	}
	write(t, ca, "half a certif") // not usable: what was there stays in use
	same(t, deliver(t, d, newEvent()), ok)
	if err := os.Remove(ca); err != nil {
		t.Fatal(err)
	}
	same(t, deliver(t, d, newEvent()), ok)
	if n := connections.opened(); n != 1 {
		t.Errorf("%d connections while the file was unusable, want still 1", n)
	}
	serves.Store(&tls.Config{Certificates: []tls.Certificate{second}})
	copyFile(t, theirs.file, ca)
	for range 5 {
		same(t, deliver(t, d, newEvent()), ok)
	}
	if n := connections.opened(); n != 2 {
		t.Errorf("%d connections after the rotation, want 2", n)
	}
}

func copyFile(t testing.TB, from, to string) {
	t.Helper()
	content, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	write(t, to, string(content))
}

func TestUnusableTLSFiles(t *testing.T) {
	ours := newAuthority(t)
	_, cert, _ := ours.issue(t)
	_, _, otherKey := ours.issue(t)
	missing := filepath.Join(t.TempDir(), "missing.pem")
	for name, files := range map[string]TLS{
		"missing CA":      {CAFile: missing},
		"no PEM":          {CAFile: secretFile(t, "no PEM")},
		"missing pair":    {CertFile: missing, KeyFile: missing},
		"key of another":  {CertFile: cert, KeyFile: otherKey},
		"key in the cert": {CertFile: otherKey, KeyFile: cert},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDestination(t, "https://127.0.0.1:1/", func(c *Config) { c.TLS = files })
			same(t, deliver(t, d, newEvent()), relay.Outcome{Kind: relay.Unavailable, Code: CodeConfig, Pause: true, Message: "tls"})
			if problems := d.Check(t.Context()); len(problems) == 0 {
				t.Error("Check finds nothing")
			}
		})
	}
}
