package webhook

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"
)

// Reason says what became of a request. There is a bounded number of them, so it may be a metric's label.
type Reason string

const (
	Handled         Reason = "handled"
	Duplicate       Reason = "duplicate"
	BadMethod       Reason = "bad_method"
	BadContentType  Reason = "bad_content_type"
	BadEncoding     Reason = "bad_content_encoding" // compressed: the signature is of the raw body
	TooLarge        Reason = "too_large"
	NoToken         Reason = "no_token"
	WrongToken      Reason = "wrong_token"
	NoSignature     Reason = "no_signature"
	BadSignature    Reason = "malformed_signature"
	WrongSignature  Reason = "wrong_signature"
	NotInTime       Reason = "not_in_time"
	BrokenBody      Reason = "broken_body" // the sender hung up, or broke off
	BadID           Reason = "bad_id"
	OtherID         Reason = "other_id_in_body"
	MalformedBody   Reason = "malformed_body" // as Handle says
	Refused         Reason = "refused"        // as Handle says
	InFlight        Reason = "in_flight"
	DifferentBody   Reason = "different_body"
	AskedToRetry    Reason = "asked_to_retry" // as Handle says
	HandlerFailed   Reason = "handler_failed"
	HandlerPanicked Reason = "handler_panicked"
	NoSecrets       Reason = "no_secrets"
	DatabaseFailed  Reason = "database_failed"
)

// TryAgain is what Handle returns when the event cannot be handled now: everything is rolled back, and the sender gets 503 with
// Retry-After; 0 means Config.RetryAfter. For a sender like the relay that is a word about the whole endpoint: it holds its other
// events back as well. Any other error is answered with 500, which is about this event alone.
func TryAgain(after time.Duration, err error) error {
	return &handlerError{err: err, status: http.StatusServiceUnavailable, reason: AskedToRetry, after: after}
}

// Malformed is what Handle returns when the body will never make sense: everything is rolled back, and the sender gets 400 with
// the error's text, so that it can be put right there.
func Malformed(err error) error {
	return &handlerError{err: err, status: http.StatusBadRequest, reason: MalformedBody}
}

// Refuse is what Handle returns when the event is understood and not wanted, now and later: a balance that is too low (402), an
// aggregate that does not exist (404), a rule that it breaks (422). Everything is rolled back, the inbox's record included, so the
// same event is handled if it is sent once more; the sender gets the status with the error's text, and a sender like the relay
// quarantines it. Statuses that mean something else (401, 403, 405, 408, 409, 425, 429) and those outside 400 to 499 are answered
// with 500.
func Refuse(status int, err error) error {
	switch status {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusMethodNotAllowed, http.StatusRequestTimeout,
		http.StatusConflict, http.StatusTooEarly, http.StatusTooManyRequests:
	default:
		if status >= 400 && status <= 499 {
			return &handlerError{err: err, status: status, reason: Refused}
		}
	}
	return fmt.Errorf("webhook.Refuse with status %d, which does not refuse one event for good: %w", status, err)
}

type handlerError struct {
	err    error
	status int
	reason Reason
	after  time.Duration
}

func (e *handlerError) Unwrap() error { return e.err }

func (e *handlerError) Error() string {
	if e.err == nil {
		return string(e.reason)
	}
	return e.err.Error()
}

// answer is what a request gets.
type answer struct {
	status int
	reason Reason
	err    error         // for the log; nil: nothing to say
	text   string        // for the sender
	after  time.Duration // Retry-After
}

// unauthorised: the reason is for the log and the metric, never for the sender.
func unauthorised(reason Reason) answer {
	return answer{status: http.StatusUnauthorized, reason: reason, err: errors.New(string(reason))}
}

func (a answer) write(w http.ResponseWriter) {
	if a.after > 0 {
		w.Header().Set("Retry-After", strconv.FormatInt(int64((a.after+time.Second-1)/time.Second), 10))
	}
	if a.status == http.StatusMethodNotAllowed {
		w.Header().Set("Allow", http.MethodPost)
	}
	var body []byte
	switch {
	case a.status == http.StatusOK:
		body, _ = json.Marshal(map[string]bool{"duplicate": a.reason == Duplicate})
	case a.text != "":
		body, _ = json.Marshal(map[string]string{"error": a.text})
	}
	if body != nil {
		w.Header().Set("Content-Type", "application/json")
	}
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(a.status)
	_, _ = w.Write(body) // a sender that has hung up will ask again
}
