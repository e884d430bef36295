package envelope

import (
	"errors"
	"fmt"
	"unicode/utf8"

	"github.com/pillarbox-dev/pillarbox/envelope/internal/jsontext"
	"github.com/pillarbox-dev/pillarbox/relay"
)

// Codes of outcomes.
const (
	CodeInvalid = "ENVELOPE_INVALID" // the event cannot be wrapped
	CodeTimeout = "ENVELOPE_TIMEOUT" // wrapping it took too long
)

// InvalidError says that an event cannot be wrapped. Another try would end the same way.
type InvalidError struct {
	// Problem says what is wrong, and Hint what to do about it. Neither shows what the payload says.
	Problem string
	Hint    string
}

func (e *InvalidError) Error() string { return e.Problem + ": " + e.Hint }

// ErrTimeout says that a jq expression did not come to an end in time.
var ErrTimeout = errors.New("the jq expression took too long: make it simpler, or raise jq.timeout")

// Outcome says what an error of Wrap means for the delivery: a Reject for an *InvalidError, and a Retry for anything else,
// since a machine that was busy is no fault of the event.
func Outcome(err error) relay.Outcome {
	var invalid *InvalidError
	if errors.As(err, &invalid) {
		return relay.Outcome{Kind: relay.Reject, Code: CodeInvalid, Message: err.Error()}
	}
	return relay.Outcome{Kind: relay.Retry, Code: CodeTimeout, Message: err.Error()}
}

func invalid(hint, problem string, args ...any) error {
	return &InvalidError{Problem: fmt.Sprintf(problem, args...), Hint: hint}
}

// Hints for operators.
const (
	repairPayload = "repair the payload, then retry, or discard the event"
	repairHeaders = "repair the headers, then retry, or discard the event"
	replaceEvent  = "discard the event, and enqueue it again as it should be"
)

// checkTexts refuses an event whose texts cannot be written as JSON without changing them.
func checkTexts(e *relay.Event) error {
	for _, c := range columns {
		if c.text != nil && !utf8.ValidString(c.text(e)) {
			return invalid(replaceEvent, "%s is not valid UTF-8", c.name)
		}
	}
	return nil
}

// checkJSON refuses a payload that is not what its column says.
func checkJSON(payload []byte) error {
	if err := jsontext.Check(payload); err != nil {
		return invalid(repairPayload, "the payload is %v", err)
	}
	return nil
}

// headersOf returns the event's own headers.
func headersOf(e *relay.Event) (map[string]string, error) {
	own, err := e.HeaderMap()
	if err != nil {
		return nil, invalid(repairHeaders, "the headers are not a flat JSON object of strings")
	}
	return own, nil
}
