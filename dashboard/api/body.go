package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/pillarbox-dev/pillarbox/ops"
)

// How much a body may have. A repair brings a payload along, in base64 if it is no JSON.
const (
	maxBody       = 64 << 10
	maxRepairBody = 2 << 20
)

// fields reads the fields of an object in a body. It gathers what is wrong, for all objects of the body; done returns it.
type fields struct {
	values map[string]json.RawMessage
	at     string // the object's JSON pointer
	known  []string
	body   *faults
}

// faults are what is wrong with a body.
type faults struct {
	all     []fault
	version bool // the version is missing
}

// body reads a JSON object.
func (c *call) body(limit int64) (*fields, error) {
	if err := c.query().done(); err != nil {
		return nil, err
	}
	text, err := io.ReadAll(http.MaxBytesReader(c.w, c.Body, limit))
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		return nil, problem{Status: http.StatusRequestEntityTooLarge, Type: "too-large",
			Detail: fmt.Sprintf("the body has more than %d bytes", limit), Hint: "send less at once"}
	case err != nil:
		return nil, problem{Status: http.StatusBadRequest, Type: "malformed", Detail: "the body could not be read",
			Hint: "send it again"}
	}
	// A form of another site can send everything but this type without asking first.
	if kind, _, err := mime.ParseMediaType(c.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		return nil, problem{Status: http.StatusUnsupportedMediaType, Type: "unsupported-media-type",
			Detail: "the body is not sent as JSON", Hint: "send Content-Type: application/json"}
	}
	f := &fields{body: &faults{}}
	if err := json.Unmarshal(text, &f.values); err != nil || f.values == nil {
		return nil, problem{Status: http.StatusBadRequest, Type: "malformed", Detail: "the body is no JSON object" + where(err),
			Hint: `send at least {}`}
	}
	return f, nil
}

// where tells where a syntax error is, without quoting what stands there.
func where(err error) string {
	var syntax *json.SyntaxError
	if errors.As(err, &syntax) {
		return fmt.Sprintf(": it breaks off or goes wrong at byte %d", syntax.Offset)
	}
	return ""
}

func (f *fields) bad(name, format string, args ...any) {
	escaped := strings.NewReplacer("~", "~0", "/", "~1").Replace(name)
	f.body.all = append(f.body.all, fault{Pointer: f.at + "/" + escaped, Detail: fmt.Sprintf(format, args...)})
}

// take decodes a field, and tells whether it is there. want says what it has to be.
func (f *fields) take(name string, into any, want string) bool {
	f.known = append(f.known, name)
	text, given := f.values[name]
	if !given {
		return false
	}
	if bytes.Equal(text, []byte("null")) || json.Unmarshal(text, into) != nil {
		f.bad(name, "wants %s", want)
		return false
	}
	return true
}

func (f *fields) text(name string) (text string) {
	f.take(name, &text, "text")
	return text
}

// reason is recorded in the operators' log.
func (f *fields) reason(required bool) string {
	reason := strings.TrimSpace(f.text("reason"))
	switch {
	case required && reason == "" && f.values["reason"] == nil:
		f.bad("reason", "is missing: say why, for the next one who looks")
	case required && reason == "":
		f.bad("reason", "is empty: say why, for the next one who looks")
	case len(reason) > ops.MaxReason:
		f.bad("reason", "has %d bytes: shorten it to %d", len(reason), ops.MaxReason)
	}
	return reason
}

// number reads a whole number from least on; 0: it is not given.
func (f *fields) number(name string, least int64) (n int64) {
	if f.take(name, &n, fmt.Sprintf("a whole number from %d on", least)) && n < least {
		f.bad(name, "wants a whole number from %d on", least)
	}
	return n
}

func (f *fields) texts(name string) (texts []string) {
	f.take(name, &texts, "a list of texts")
	return texts
}

func (f *fields) flag(name string) (flag bool) {
	f.take(name, &flag, "true or false")
	return flag
}

func (f *fields) moment(name string) (t time.Time) {
	f.take(name, &t, "a time such as 2026-01-31T12:00:00Z")
	return t
}

// version takes the version that was seen. Without it nothing is changed: somebody else may have been faster.
func (f *fields) version(into any, want string) {
	if f.take("version", into, want) {
		return
	}
	if _, given := f.values["version"]; !given {
		f.body.version = true
		f.bad("version", "is missing: look first, and send the version that you saw")
	}
}

// object returns the fields of an inner object, which has none when it is not there.
func (f *fields) object(name string) *fields {
	inner := &fields{at: f.at + "/" + name, body: f.body}
	f.take(name, &inner.values, "an object")
	return inner
}

// close notes the fields that nobody has asked for.
func (f *fields) close() {
	var unknown []string
	for name := range f.values {
		if !slices.Contains(f.known, name) {
			unknown = append(unknown, name)
		}
	}
	slices.Sort(unknown)
	for _, name := range unknown {
		f.bad(name, "is not known here: use %s", strings.Join(f.known, ", "))
	}
}

// done returns everything that is wrong with the body.
func (f *fields) done() error {
	f.close()
	switch {
	case len(f.body.all) == 0:
		return nil
	case f.body.version:
		return problem{Status: http.StatusPreconditionRequired, Type: "version-required", Detail: "the version is missing",
			Hint: "look at it first, and send the version that you saw", Errors: f.body.all}
	}
	return problem{Status: http.StatusUnprocessableEntity, Type: "invalid", Detail: "fields of the body are wrong",
		Errors: f.body.all}
}
