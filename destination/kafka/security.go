package kafka

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

// TLS holds the trust and the certificate. Its files are read for every connection.
type TLS struct {
	// CAFile holds the certificates to trust, in PEM. Default: the system's.
	CAFile string
	// CertFile and KeyFile are our certificate, in PEM, when the brokers ask for one.
	CertFile, KeyFile string
	// ServerName is the name that the brokers' certificates must have. Default: the host that is dialled.
	ServerName string
}

// Mechanism is a way to authenticate.
type Mechanism string

const (
	Plain       Mechanism = "PLAIN"
	ScramSHA256 Mechanism = "SCRAM-SHA-256"
	ScramSHA512 Mechanism = "SCRAM-SHA-512"
	OAuthBearer Mechanism = "OAUTHBEARER"
)

// SASL says who we are. Its files are read for every connection, so that a rotated one is used at the next.
type SASL struct {
	Mechanism Mechanism
	// User, and PasswordFile or Password, are for PLAIN and SCRAM.
	User, PasswordFile, Password string
	// TokenFile or Token is for OAUTHBEARER.
	TokenFile, Token string
}

// maxCredential bounds a credential file, in bytes. What is longer is some other file.
const maxCredential = 64 << 10

func (t *TLS) problems() (problems []error) {
	if (t.CertFile == "") != (t.KeyFile == "") {
		problems = append(problems, errors.New("tls.cert_file and tls.key_file belong together: set both or none"))
	}
	return problems
}

func (s *SASL) problems() (problems []error) {
	wrong := func(text string) { problems = append(problems, errors.New(text)) }
	switch s.Mechanism {
	case Plain, ScramSHA256, ScramSHA512:
		if s.User == "" {
			wrong("sasl.user is missing: name the relay's user")
		}
		if (s.PasswordFile == "") == (s.Password == "") {
			wrong("sasl.password_file or sasl.password: give exactly one of them")
		}
		if s.Token != "" || s.TokenFile != "" {
			wrong("sasl.token_file is for OAUTHBEARER alone: take it out")
		}
	case OAuthBearer:
		if (s.TokenFile == "") == (s.Token == "") {
			wrong("sasl.token_file or sasl.token: give exactly one of them")
		}
		if s.User != "" || s.Password != "" || s.PasswordFile != "" {
			wrong("sasl.user and sasl.password_file are not for OAUTHBEARER: take them out")
		}
	default:
		wrong(fmt.Sprintf("sasl.mechanism is %q: it must be PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 or OAUTHBEARER", s.Mechanism))
	}
	return problems
}

// security are the options that the configuration asks for.
func (c *Config) security() (opts []kgo.Opt) {
	dialer := &net.Dialer{Timeout: dialTimeout}
	opts = append(opts, kgo.Dialer(func(ctx context.Context, network, host string) (net.Conn, error) {
		if c.TLS == nil {
			return dialer.DialContext(ctx, network, host)
		}
		config, err := c.TLS.load()
		if err != nil {
			return nil, err
		}
		return (&tls.Dialer{NetDialer: dialer, Config: config}).DialContext(ctx, network, host)
	}))
	if c.SASL != nil {
		opts = append(opts, kgo.SASL(c.SASL.mechanism()))
	}
	return opts
}

// credentialError says that a file or a setting is missing. It never holds a secret.
type credentialError struct{ text string }

func (e *credentialError) Error() string { return e.text }

func (t *TLS) load() (*tls.Config, error) {
	config := &tls.Config{ServerName: t.ServerName}
	if t.CAFile != "" {
		pem, err := os.ReadFile(t.CAFile)
		if err != nil {
			return nil, &credentialError{"tls.ca_file: " + err.Error() + ": mount it and let the relay's user read it"}
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(pem) {
			return nil, &credentialError{"tls.ca_file " + t.CAFile + " holds no certificate: write it in PEM"}
		}
	}
	if t.CertFile != "" {
		pair, err := tls.LoadX509KeyPair(t.CertFile, t.KeyFile)
		if err != nil {
			return nil, &credentialError{"tls.cert_file and tls.key_file: " + err.Error()}
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return config, nil
}

func (s *SASL) mechanism() sasl.Mechanism {
	password := func() (string, error) { return credential("sasl.password", s.PasswordFile, s.Password) }
	scramAuth := func(context.Context) (scram.Auth, error) {
		secret, err := password()
		return scram.Auth{User: s.User, Pass: secret}, err
	}
	switch s.Mechanism {
	case ScramSHA256:
		return scram.Sha256(scramAuth)
	case ScramSHA512:
		return scram.Sha512(scramAuth)
	case OAuthBearer:
		return oauth.Oauth(func(context.Context) (oauth.Auth, error) {
			token, err := credential("sasl.token", s.TokenFile, s.Token)
			return oauth.Auth{Token: token}, err
		})
	}
	return plain.Plain(func(context.Context) (plain.Auth, error) {
		secret, err := password()
		return plain.Auth{User: s.User, Pass: secret}, err
	})
}

// credential reads a file, or takes the value when there is none.
func credential(setting, name, value string) (string, error) {
	if name == "" {
		return value, nil
	}
	setting += "_file"
	content, err := readSome(name)
	if err != nil {
		return "", &credentialError{setting + ": " + err.Error() + ": mount it and let the relay's user read it"}
	}
	if len(content) > maxCredential {
		return "", &credentialError{fmt.Sprintf("%s %s is longer than %d bytes: it is no credential", setting, name, maxCredential)}
	}
	content = bytes.TrimSpace(content)
	if len(content) == 0 {
		return "", &credentialError{setting + " " + name + " is empty: write the credential into it"}
	}
	return string(content), nil
}

// readSome reads a little more than a credential may hold. A pipe without a writer counts as empty and holds nothing up.
func readSome(name string) ([]byte, error) {
	file, err := os.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	return io.ReadAll(io.LimitReader(file, maxCredential+1))
}
