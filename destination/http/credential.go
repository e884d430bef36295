package http

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"strings"
	"syscall"

	"github.com/pillarbox-dev/pillarbox/outbox/webhook"
)

// maxCredential bounds a credential file, in bytes. What is longer is some other file.
const maxCredential = 64 << 10

// credentials are what one attempt signs and authenticates with.
type credentials struct {
	secrets [][]byte
	token   string
}

// credentials reads the endpoint's files. They are read for every attempt: a mounted file is rotated under a running
// process, and a delivery that was signed with yesterday's secret is one that the receiver refuses.
func (e *Endpoint) credentials(f *files) (c credentials, err error) {
	if e.Secret != "" {
		secret := bytes.TrimSpace([]byte(e.Secret))
		if len(secret) == 0 {
			return credentials{}, errors.New("secret is blank: set it to the credential")
		}
		c.secrets = append(c.secrets, secret)
	}
	for _, name := range e.SecretFiles {
		secret, err := e.credential(f, "secret_file", name)
		if err != nil {
			return credentials{}, err
		}
		c.secrets = append(c.secrets, secret)
	}
	token, where := bytes.TrimSpace([]byte(e.Token)), "token"
	if e.Token != "" && len(token) == 0 {
		return credentials{}, errors.New("token is blank: set it to the credential")
	}
	if e.TokenFile != "" {
		where = "token_file " + e.TokenFile
		if token, err = e.credential(f, "token_file", e.TokenFile); err != nil {
			return credentials{}, err
		}
	}
	if !isToken(token) {
		return credentials{}, errors.New(where + " holds characters that a header cannot carry: " +
			"write the token alone, in visible ASCII on one line")
	}
	c.token = string(token)
	return c, nil
}

// credential reads one file.
func (e *Endpoint) credential(f *files, what, name string) ([]byte, error) {
	read := f.read
	if e.within {
		read = e.readWithin
	}
	content, err := read(name)
	if err != nil {
		return nil, fmt.Errorf("%s: %w: mount it and let the relay's user read it", what, err)
	}
	if len(content) > maxCredential {
		return nil, fmt.Errorf("%s %q is longer than %d bytes: it is no credential", what, name, maxCredential)
	}
	content = bytes.TrimSpace(content)
	if len(content) == 0 {
		return nil, fmt.Errorf("%s %q is empty: write the credential into it", what, name)
	}
	return content, nil
}

func (e *Endpoint) readWithin(name string) ([]byte, error) {
	if e.folder == "" {
		return nil, errors.New("endpoints of a table may not name files, because credential_folder is not set")
	}
	root, err := os.OpenRoot(e.folder)
	if err != nil {
		return nil, err
	}
	defer func() { _ = root.Close() }()
	file, err := root.OpenFile(name, openFlags, 0)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	return readSome(file)
}

// openFlags: a pipe without a writer counts as empty and does not hold the delivery up.
const openFlags = os.O_RDONLY | syscall.O_NONBLOCK

// readSome reads a file, up to a little more than it may hold.
func readSome(file io.Reader) ([]byte, error) {
	return io.ReadAll(io.LimitReader(file, maxCredential+1))
}

// isToken tells whether a token can stand in a header as it is.
func isToken(token []byte) bool {
	for _, c := range token {
		if c <= ' ' || c >= 0x7f {
			return false
		}
	}
	return true
}

// equal tells whether a credential that was read again is the same.
func (c credentials) equal(other credentials) bool {
	if c.token != other.token || len(c.secrets) != len(other.secrets) {
		return false
	}
	for i := range c.secrets {
		if !bytes.Equal(c.secrets[i], other.secrets[i]) {
			return false
		}
	}
	return true
}

// standardSecrets decodes the secrets as Standard Webhooks has them.
func (c credentials) standardSecrets() ([][]byte, error) {
	decoded := make([][]byte, len(c.secrets))
	for i, text := range c.secrets {
		secret, err := webhook.ParseSecret(string(text))
		if err != nil {
			return nil, fmt.Errorf("secret_file: %w", err)
		}
		decoded[i] = secret
	}
	return decoded, nil
}

// redact takes out of a text that came from the other side what it may have echoed: the token, the secrets, and the
// query of the URL with each of its values, as it was written and as it reads.
func (c credentials) redact(text string, u *url.URL) string {
	var hidden []string // what, by what, what, by what …
	hide := func(secret string) {
		for _, form := range []string{secret, url.QueryEscape(secret), strings.ReplaceAll(secret, "/", `\/`)} {
			if form != "" {
				hidden = append(hidden, form, "[redacted]")
			}
		}
	}
	hide(c.token)
	for _, secret := range c.secrets {
		hide(string(secret))
	}
	if u != nil && u.RawQuery != "" {
		hide(u.RawQuery)
		for part := range strings.FieldsFuncSeq(u.RawQuery, func(r rune) bool { return r == '&' || r == ';' }) {
			value := part // the whole is one too, without a name
			if _, after, named := strings.Cut(part, "="); named {
				value = after
			}
			if len(value) <= 3 {
				continue // hiding every 1 would leave nothing to read
			}
			hide(value)
			if reads, err := url.QueryUnescape(value); err == nil {
				hide(reads)
			}
		}
	}
	return strings.NewReplacer(hidden...).Replace(text)
}
