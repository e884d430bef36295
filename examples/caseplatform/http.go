package main

import (
	"bytes"
	"cmp"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"unicode/utf8"

	"github.com/pillarbox-dev/pillarbox/outbox/idempotency"
)

// The headers that say who asks, and what the request belongs to. In a real platform the tenant comes out of a verified token.
const (
	tenantHeader      = "X-Tenant-Id"
	correlationHeader = "X-Correlation-Id"
)

const maxBody = 64 << 10

// caller is who asks.
type caller struct{ tenant, correlation string }

func callerOf(req *http.Request) (caller, error) {
	by := caller{req.Header.Get(tenantHeader), cmp.Or(req.Header.Get(correlationHeader), rand.Text())}
	return by, errors.Join(checkName(tenantHeader, by.tenant), checkName(correlationHeader, by.correlation))
}

// problem is an error as RFC 9457 has it, with a code for programs.
type problem struct {
	Type   string `json:"type"`
	Title  string `json:"title"`
	Status int    `json:"status"`
	Code   string `json:"code"`
	Detail string `json:"detail"`
}

func refuse(status int, code, detail string) idempotency.Response {
	r := answer(status, problem{"about:blank", http.StatusText(status), status, code, detail})
	r.Header.Set("Content-Type", "application/problem+json")
	return r
}

// badRequest refuses a request with everything that is wrong about it, if anything is.
func badRequest(wrong error) (r idempotency.Response, bad bool) {
	if wrong == nil {
		return r, false
	}
	return refuse(http.StatusBadRequest, "BAD_REQUEST", strings.ReplaceAll(wrong.Error(), "\n", "; ")), true
}

func answer(status int, value any) idempotency.Response {
	text, err := json.Marshal(value)
	if err != nil {
		panic(err) // see lifecycle
	}
	return idempotency.Response{Status: status, Header: http.Header{"Content-Type": {"application/json"}}, Body: text}
}

func write(w http.ResponseWriter, r idempotency.Response) {
	for name, values := range r.Header {
		w.Header()[name] = values
	}
	w.WriteHeader(r.Status)
	_, _ = w.Write(r.Body) // a client that has hung up will ask again
}

func read(w http.ResponseWriter, req *http.Request) ([]byte, error) {
	body, err := io.ReadAll(http.MaxBytesReader(w, req.Body, maxBody))
	if err != nil {
		return nil, fmt.Errorf("the body did not arrive whole, or has more than %d bytes", maxBody)
	}
	return body, nil
}

// decode reads JSON strictly. An empty body is an empty object.
func decode(body []byte, value any) error {
	if len(bytes.TrimSpace(body)) == 0 {
		return nil
	}
	d := json.NewDecoder(bytes.NewReader(body))
	d.DisallowUnknownFields()
	if err := d.Decode(value); err != nil {
		return fmt.Errorf("the body is not what is asked for: %w", err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("the body goes on after its end: send one JSON object")
	}
	return nil
}

// checkName: names go into headers and addresses, so they are 1 to 100 visible ASCII characters without a slash.
func checkName(what, name string) error {
	if name == "" || len(name) > 100 || strings.ContainsFunc(name, func(c rune) bool { return c <= ' ' || c > '~' || c == '/' }) {
		return fmt.Errorf("%s has to be 1 to 100 visible ASCII characters without a slash", what)
	}
	return nil
}

func checkOptional(what, name string) error {
	if name == "" {
		return nil
	}
	return checkName(what, name)
}

func checkText(what, text string) error {
	if utf8.RuneCountInString(text) > 1000 || strings.ContainsRune(text, 0) {
		return fmt.Errorf("%s may have 1,000 characters, and no NUL", what)
	}
	return nil
}
