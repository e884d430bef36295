package webhook

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"mime"
	"net/http"
	"slices"
	"strings"

	"github.com/pillarbox-dev/pillarbox/outbox"
	"github.com/pillarbox-dev/pillarbox/outbox/inbox"
)

type receiver[T any] struct{ Config[T] }

func (r *receiver[T]) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	a, id := r.receive(w, req)
	r.Count(a.status, a.reason)
	if a.err != nil {
		level := slog.LevelWarn
		if a.status >= 500 {
			level = slog.LevelError
		}
		r.Log.LogAttrs(req.Context(), level, "delivery not taken",
			slog.String("consumer", r.Consumer), slog.String("event_id", id), slog.Int("status", a.status), slog.String("reason", string(a.reason)), slog.String("remote", req.RemoteAddr),
			slog.String("error", a.err.Error()))
	}
	a.write(w)
}

// receive goes through the checks in their order. The id is "" until the signature was verified.
func (r *receiver[T]) receive(w http.ResponseWriter, req *http.Request) (a answer, id string) {
	if a, ok := r.checkForm(req); !ok {
		return a, ""
	}
	if a, ok := r.checkToken(req); !ok {
		return a, ""
	}
	verify, a, ok := r.checkShape(req)
	if !ok {
		return a, ""
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, req.Body, r.MaxBodyBytes))
	if large := (*http.MaxBytesError)(nil); errors.As(err, &large) {
		return r.tooLarge(), ""
	} else if err != nil {
		return answer{status: http.StatusBadRequest, reason: BrokenBody, err: fmt.Errorf("read the body: %w", err)}, ""
	}
	if a, ok := r.checkSignature(req.Context(), verify, body); !ok {
		return a, ""
	}
	if id, ok = single(req.Header, r.IDHeader); !ok || !sane(id) {
		text := "send one " + r.IDHeader + ": 1 to 255 visible ASCII characters"
		return answer{status: http.StatusBadRequest, reason: BadID, err: errors.New(text), text: text}, ""
	}
	d := Delivery{ID: id, Header: req.Header, Body: body}
	if r.BodyID != nil {
		inBody, err := r.BodyID(body)
		if err != nil || inBody != id {
			text := "the event id in the body is not that of " + r.IDHeader
			return answer{status: http.StatusBadRequest, reason: OtherID, err: errors.Join(errors.New(text), err), text: text}, id
		}
	}
	return r.transact(req.Context(), d), id
}

// ---- Before the body is read -------------------------------------------------------------------------------------

func (r *receiver[T]) checkForm(req *http.Request) (answer, bool) {
	switch {
	case req.Method != http.MethodPost:
		return refuse(http.StatusMethodNotAllowed, BadMethod, "use POST"), false
	case !r.takes(req):
		return refuse(http.StatusUnsupportedMediaType, BadContentType, "the Content-Type is not one that is taken here"), false
	case !slices.Equal(req.Header["Content-Encoding"], []string{"identity"}) && len(req.Header["Content-Encoding"]) > 0:
		return refuse(http.StatusUnsupportedMediaType, BadEncoding, "send the body as it is, without a Content-Encoding"), false
	case req.ContentLength > r.MaxBodyBytes:
		return r.tooLarge(), false
	}
	return answer{}, true
}

func refuse(status int, reason Reason, text string) answer {
	return answer{status: status, reason: reason, err: errors.New(text), text: text}
}

func (r *receiver[T]) tooLarge() answer {
	return refuse(http.StatusRequestEntityTooLarge, TooLarge, fmt.Sprintf("the body may have %d bytes", r.MaxBodyBytes))
}

// takes tells whether the request's media type is one of those that are taken.
func (r *receiver[T]) takes(req *http.Request) bool {
	given, present := single(req.Header, "Content-Type")
	if !present {
		return req.ContentLength == 0 && len(req.Header["Content-Type"]) == 0
	}
	kind, _, err := mime.ParseMediaType(given)
	if err != nil {
		return false
	}
	if len(r.ContentTypes) == 0 {
		return kind == "application/json" || strings.HasPrefix(kind, "application/") && strings.HasSuffix(kind, "+json")
	}
	return slices.ContainsFunc(r.ContentTypes, func(taken string) bool { return strings.EqualFold(kind, taken) })
}

// single returns the value of a header that is there exactly once, and not empty.
func single(h http.Header, name string) (string, bool) {
	values := h[name]
	if len(values) != 1 || values[0] == "" {
		return "", false
	}
	return values[0], true
}

// sane: what an event id of the log may be.
func sane(id string) bool {
	return len(id) <= 255 && !strings.ContainsFunc(id, func(c rune) bool { return c < 0x21 || c > 0x7e })
}

func (r *receiver[T]) checkToken(req *http.Request) (answer, bool) {
	if r.Tokens == nil {
		return answer{}, true
	}
	active, err := r.Tokens(req.Context())
	active = slices.DeleteFunc(slices.Clone(active), func(token string) bool { return token == "" })
	if err != nil || len(active) == 0 {
		return r.unavailable(NoSecrets, errors.Join(errors.New("there is no bearer token to compare with"), err)), false
	}
	given, ok := single(req.Header, "Authorization")
	if !ok {
		return unauthorised(NoToken), false
	}
	scheme, token, _ := strings.Cut(given, " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return unauthorised(NoToken), false
	}
	// Hashes are compared, so that the time does not tell the length; all of them, so that it does not tell which one fits.
	sum, fits := sha256.Sum256([]byte(token)), false
	for _, right := range active {
		want := sha256.Sum256([]byte(right))
		fits = hmac.Equal(sum[:], want[:]) || fits
	}
	if !fits {
		return unauthorised(WrongToken), false
	}
	return answer{}, true
}

func (r *receiver[T]) unavailable(reason Reason, err error) answer {
	return answer{status: http.StatusServiceUnavailable, reason: reason, err: err, after: r.RetryAfter}
}

// checkShape looks at the signature's headers and returns what verifies them with the body.
func (r *receiver[T]) checkShape(req *http.Request) (verify func(secrets [][]byte, body []byte) error, a answer, ok bool) {
	signature, ok := single(req.Header, r.SignatureHeader)
	if !ok {
		return nil, unauthorised(NoSignature), false
	}
	if r.Scheme == SHA256Hex {
		given, err := decodeHex(signature)
		if err != nil {
			return nil, unauthorised(BadSignature), false
		}
		return func(secrets [][]byte, body []byte) error { return given.verify(secrets, body) }, answer{}, true
	}
	id, hasID := single(req.Header, r.IDHeader)
	timestamp, hasTime := single(req.Header, r.TimestampHeader)
	if !hasID || !hasTime {
		return nil, unauthorised(NoSignature), false
	}
	given, err := parseStandard(Standard{id, timestamp, signature})
	if err != nil {
		return nil, unauthorised(BadSignature), false
	}
	return func(secrets [][]byte, body []byte) error {
		return given.verify(secrets, body, r.Now(), r.Tolerance)
	}, answer{}, true
}

// ---- With the body -----------------------------------------------------------------------------------------------

func (r *receiver[T]) checkSignature(
	ctx context.Context, verify func(secrets [][]byte, body []byte) error, body []byte,
) (answer, bool) {
	secrets, err := r.Secrets(ctx)
	// With an empty secret everybody could sign: it is no secret, but a file that was not filled.
	secrets = slices.DeleteFunc(slices.Clone(secrets), func(secret []byte) bool { return len(secret) == 0 })
	if err != nil || len(secrets) == 0 {
		return r.unavailable(NoSecrets, errors.Join(ErrNoSecret, err)), false
	}
	switch err := verify(secrets, body); {
	case err == nil:
		return answer{}, true
	case errors.Is(err, ErrNotInTime):
		return unauthorised(NotInTime), false
	default:
		return unauthorised(WrongSignature), false
	}
}

// transact handles a delivery in a transaction. Whatever way it is left, by an error or a panic, the transaction is at its end.
func (r *receiver[T]) transact(ctx context.Context, d Delivery) answer {
	own, tx, err := r.Begin(ctx)
	if err != nil {
		return r.unavailable(DatabaseFailed, fmt.Errorf("begin a transaction: %w", err))
	}
	returned := false
	defer func() {
		if !returned {
			r.Count(http.StatusInternalServerError, HandlerPanicked)
		}
		_ = tx.Rollback() // after a commit it does nothing
	}()
	a := r.handle(ctx, own, tx, d)
	returned = true
	return a
}

func (r *receiver[T]) handle(ctx context.Context, own T, tx outbox.Tx, d Delivery) answer {
	first, err := r.Inbox.First(ctx, tx, r.Consumer, d.ID, r.SameBody(d))
	switch {
	case errors.Is(err, inbox.ErrInFlight):
		return r.inFlight(err)
	case errors.Is(err, inbox.ErrDifferentBody):
		return answer{status: http.StatusUnprocessableEntity, reason: DifferentBody, err: err,
			text: "this " + r.IDHeader + " was seen with another body"}
	case err != nil:
		return r.unavailable(DatabaseFailed, err)
	}
	reason := Duplicate // committed as well: the inbox counts it
	if first {
		if err := r.Handle(ctx, own, d); err != nil {
			return r.failed(err)
		}
		reason = Handled
	}
	if err := tx.Commit(); err != nil {
		return r.unavailable(DatabaseFailed, fmt.Errorf("commit: %w", err))
	}
	return answer{status: http.StatusOK, reason: reason}
}

func (r *receiver[T]) inFlight(err error) answer {
	return answer{status: http.StatusConflict, reason: InFlight, err: err, after: r.RetryAfter,
		text: "it is being handled: try again"}
}

// failed answers for an error of the handler. What it ran into is told to the log; to the sender only what it may put right.
func (r *receiver[T]) failed(err error) answer {
	own := (*handlerError)(nil)
	switch {
	case !errors.As(err, &own) && errors.Is(err, inbox.ErrInFlight): // the version guard's
		return r.inFlight(err)
	case own == nil:
		return answer{status: http.StatusInternalServerError, reason: HandlerFailed, err: err}
	case own.status < http.StatusInternalServerError:
		return answer{status: own.status, reason: own.reason, err: err, text: own.Error()}
	}
	a := r.unavailable(own.reason, err)
	if own.after > 0 {
		a.after = own.after
	}
	return a
}
