package idempotency

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strconv"
	"time"

	"github.com/pillarbox-dev/pillarbox/outbox"
)

// Config says how commands are handled. T is the driver's transaction: *sql.Tx, pgx.Tx. Without a default: Keeper, Begin,
// Operation and Handle.
type Config[T any] struct {
	Keeper *Keeper
	// Begin begins the transaction of a command: outbox.BeginSQL(db, nil), outbox.BeginPgx(pool). READ COMMITTED is best.
	Begin outbox.Begin[T]
	// Operation says what is asked for and by whom, the authenticated caller: see Who asks in the package's documentation. With
	// an error the answer is 401: nobody is known.
	Operation func(req *http.Request) (string, error)
	// Handle makes the change and enqueues its event, in tx, and neither commits nor rolls back. What it returns is stored and
	// sent after the commit. With an error (answered with 500), a panic, or a status of 500 or more, everything is rolled back
	// and nothing is stored. The request's body was read: it is in body.
	Handle func(ctx context.Context, tx T, req *http.Request, body []byte) (Response, error)

	// Header carries the key. Default: Idempotency-Key.
	Header string
	// MaxBodyBytes bounds the request's body. Default: 1 MiB.
	MaxBodyBytes int64
	// RetryAfter is what a client is told to wait with 409 and 503, in whole seconds. Default: 1 s.
	RetryAfter time.Duration
	// Log is told what failed. Default: slog.Default().
	Log *slog.Logger
	// Count is called once for each request, for a metric with the labels status and reason. Nil: nothing is counted.
	Count func(status int, reason Reason)
}

// Reason says what became of a request. There is a bounded number of them, so it may be a metric's label.
type Reason string

const (
	Handled          Reason = "handled"
	Replayed         Reason = "replayed"
	BadKey           Reason = "bad_key"
	BadBody          Reason = "bad_body"
	UnknownCaller    Reason = "unknown_caller"
	InFlight         Reason = "in_flight"
	DifferentRequest Reason = "different_request"
	NotStored        Reason = "not_stored" // the handler answered with 500 or more
	HandlerFailed    Reason = "handler_failed"
	HandlerPanicked  Reason = "handler_panicked"
	DatabaseFailed   Reason = "database_failed"
)

// HeaderReplayed is set, to true, on a response that was stored.
const HeaderReplayed = "Idempotency-Replayed"

// NewHandler returns a handler that runs each command once, or an error that names every problem of the configuration.
// Besides what Handle answers, and the same again:
//
//	400                 the key is missing, twice or malformed; the body does not arrive whole
//	401                 Operation returned an error
//	409, Retry-After    the same command is being handled
//	413                 the body is too large
//	422                 the key was used for another request
//	500                 Handle returned an error
//	503, Retry-After    the database is not there
//
// The request is the same when method, path, query and body are.
func NewHandler[T any](c Config[T]) (http.Handler, error) {
	if c.Header == "" {
		c.Header = "Idempotency-Key"
	}
	c.Header = http.CanonicalHeaderKey(c.Header)
	if c.MaxBodyBytes == 0 {
		c.MaxBodyBytes = 1 << 20
	}
	if c.RetryAfter == 0 {
		c.RetryAfter = time.Second
	}
	if c.Log == nil {
		c.Log = slog.Default()
	}
	if c.Count == nil {
		c.Count = func(int, Reason) {}
	}
	var problems []error
	for _, p := range []struct {
		wrong bool
		text  string
	}{
		{c.Keeper == nil, "Keeper is nil: make one with idempotency.New"},
		{c.Begin == nil, "Begin is nil: outbox.BeginSQL(db, nil) for example"},
		{c.Operation == nil, "Operation is nil: give a function that says what is asked for, and by whom"},
		{c.Handle == nil, "Handle is nil: give the function that handles a command"},
		{c.MaxBodyBytes < 0, "MaxBodyBytes is negative: give a positive number, or 0 for the default"},
		{c.RetryAfter < time.Second || c.RetryAfter > 24*time.Hour, "RetryAfter: choose from 1s to 24h"},
	} {
		if p.wrong {
			problems = append(problems, errors.New(p.text))
		}
	}
	if err := errors.Join(problems...); err != nil {
		return nil, fmt.Errorf("idempotency configuration: %w", err)
	}
	return &handler[T]{c}, nil
}

type handler[T any] struct{ Config[T] }

// answer is what a request gets.
type answer struct {
	Response
	reason Reason
	err    error // for the log; nil: nothing to say
}

func (h *handler[T]) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	a := h.receive(w, req)
	h.Count(a.Status, a.reason)
	if a.err != nil {
		level := slog.LevelWarn
		if a.Status >= 500 {
			level = slog.LevelError
		}
		h.Log.LogAttrs(req.Context(), level, "command not handled",
			slog.Int("status", a.Status), slog.String("reason", string(a.reason)), slog.String("method", req.Method), slog.String("path", req.URL.Path), slog.String("error", a.err.Error()))
	}
	for name, values := range a.Header {
		w.Header()[http.CanonicalHeaderKey(name)] = values
	}
	if a.reason == Replayed {
		w.Header().Set(HeaderReplayed, "true")
	}
	w.WriteHeader(a.Status)
	_, _ = w.Write(a.Body) // a client that has hung up will ask again
}

func (h *handler[T]) receive(w http.ResponseWriter, req *http.Request) answer {
	keys := req.Header[h.Header]
	if len(keys) != 1 || check(keys[0], "any") != nil {
		return h.refuse(http.StatusBadRequest, BadKey, fmt.Errorf("send one %s: %w", h.Header, ErrKey))
	}
	operation, err := h.Operation(req)
	if err != nil {
		return answer{Response{Status: http.StatusUnauthorized}, UnknownCaller, err}
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, req.Body, h.MaxBodyBytes))
	if large := (*http.MaxBytesError)(nil); errors.As(err, &large) {
		return h.refuse(http.StatusRequestEntityTooLarge, BadBody, fmt.Errorf("the body may have %d bytes", h.MaxBodyBytes))
	} else if err != nil {
		return h.refuse(http.StatusBadRequest, BadBody, errors.New("the body did not arrive whole"))
	}
	return h.transact(req, keys[0], operation, body)
}

// refuse answers with the error's text.
func (h *handler[T]) refuse(status int, reason Reason, err error) answer {
	text, _ := json.Marshal(map[string]string{"error": err.Error()})
	a := answer{Response{status, http.Header{"Content-Type": {"application/json"}}, text}, reason, err}
	if reason == InFlight {
		a.Header.Set("Retry-After", h.retryAfter())
	}
	return a
}

func (h *handler[T]) unavailable(err error) answer {
	return answer{Response{http.StatusServiceUnavailable, http.Header{"Retry-After": {h.retryAfter()}}, nil}, DatabaseFailed, err}
}

func (h *handler[T]) retryAfter() string {
	return strconv.FormatInt(int64((h.RetryAfter+time.Second-1)/time.Second), 10)
}

// transact handles a command in a transaction. Whatever way it is left, by an error or a panic, the transaction is at its end.
func (h *handler[T]) transact(req *http.Request, key, operation string, body []byte) answer {
	ctx := req.Context()
	own, tx, err := h.Begin(ctx)
	if err != nil {
		return h.unavailable(fmt.Errorf("begin a transaction: %w", err))
	}
	returned := false
	defer func() {
		if !returned {
			h.Count(http.StatusInternalServerError, HandlerPanicked)
		}
		_ = tx.Rollback() // after a commit it does nothing
	}()
	a := h.handle(ctx, own, tx, req, key, operation, body)
	returned = true
	return a
}

func (h *handler[T]) handle(
	ctx context.Context, own T, tx outbox.Tx, req *http.Request, key, operation string, body []byte,
) answer {
	fingerprint := fmt.Appendf(nil, "%s %s\n%s", req.Method, req.URL.RequestURI(), body)
	var failed *answer // what is answered and not stored
	r, replayed, err := h.Keeper.Do(ctx, tx, key, operation, fingerprint, func(ctx context.Context) (Response, error) {
		r, err := h.Handle(ctx, own, req, body)
		switch {
		case err != nil:
			failed = &answer{Response{Status: http.StatusInternalServerError}, HandlerFailed, err}
			return r, err
		case r.Status >= 500:
			failed = &answer{r, NotStored, fmt.Errorf("the handler answered with %d", r.Status)}
			return r, failed.err
		}
		return r, nil
	})
	switch {
	case failed != nil:
		return *failed
	case errors.Is(err, ErrInFlight):
		return h.refuse(http.StatusConflict, InFlight, ErrInFlight)
	case errors.Is(err, ErrDifferentRequest):
		return h.refuse(http.StatusUnprocessableEntity, DifferentRequest, ErrDifferentRequest)
	case errors.Is(err, ErrResponse):
		return answer{Response{Status: http.StatusInternalServerError}, HandlerFailed, err}
	case err != nil:
		return h.unavailable(err)
	}
	if err := tx.Commit(); err != nil {
		return h.unavailable(fmt.Errorf("commit: %w", err))
	}
	if replayed {
		return answer{r, Replayed, nil}
	}
	return answer{r, Handled, nil}
}
