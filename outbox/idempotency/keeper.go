package idempotency

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/pillarbox-dev/pillarbox/outbox"
	"github.com/pillarbox-dev/pillarbox/outbox/internal/txn"
	"github.com/pillarbox-dev/pillarbox/outbox/schema"
)

var (
	// ErrInFlight says that the same command is being handled in another transaction: answer 409 with Retry-After.
	ErrInFlight = errors.New("the command is being handled: try again later")
	// ErrDifferentRequest says that the key was used for another request: answer 422.
	ErrDifferentRequest = errors.New("the idempotency key was used for another request: use a new key for each command")
	// ErrKey says that the key cannot be taken: answer 400.
	ErrKey = errors.New("an idempotency key has 1 to 255 visible ASCII characters")
	// ErrResponse says that fn returned what cannot be stored: a status outside 200 to 599, or a body that is too large.
	ErrResponse = errors.New("the response cannot be stored")
)

// Options are a service's settings. The zero value is right for tables in the schema public.
type Options struct {
	// Schema is the PostgreSQL schema that holds the tables. Default: public. SQLite has none: leave it empty.
	Schema string
	// Wait bounds how long a call waits for another transaction, in PostgreSQL. Default: 1 s; at most 1 min; negative: not at
	// all. A connection is held meanwhile.
	Wait time.Duration
	// Keep is how long a response is kept. Default: 24 h; from 1 s to 10 years.
	Keep time.Duration
	// Headers are the names of the response's headers that are stored. Default: Content-Type, Content-Language, ETag,
	// Last-Modified and Location. Never store Set-Cookie.
	Headers []string
	// MaxBodyBytes bounds the body of a response that is stored. Default: 1 MiB.
	MaxBodyBytes int
}

// Response is what a command was answered with.
type Response struct {
	// Status is from 200 to 599; 0 means 200.
	Status int
	Header http.Header
	Body   []byte
}

// Keeper stores first responses. It holds no connection; any number of goroutines may use it.
type Keeper struct {
	dialect outbox.Dialect
	opts    Options
	statements
}

// New returns a keeper, or an error that names every problem of the options. It does not look at the database: see schema.Check.
func New(d outbox.Dialect, opts Options) (*Keeper, error) {
	if d == outbox.Postgres && opts.Schema == "" {
		opts.Schema = "public"
	}
	if opts.Wait == 0 {
		opts.Wait = txn.DefaultWait
	}
	if opts.Keep == 0 {
		opts.Keep = 24 * time.Hour
	}
	if opts.MaxBodyBytes == 0 {
		opts.MaxBodyBytes = 1 << 20
	}
	if opts.Headers == nil {
		opts.Headers = []string{"Content-Type", "Content-Language", "ETag", "Last-Modified", "Location"}
	}
	problems := []error{schema.CheckName(d, opts.Schema), txn.CheckWait(opts.Wait)}
	if opts.Keep < time.Second || opts.Keep > 10*366*24*time.Hour {
		problems = append(problems, fmt.Errorf("option Keep is %v: choose from 1s to 10 years", opts.Keep))
	}
	if opts.MaxBodyBytes < 0 || opts.MaxBodyBytes > maxBody {
		problems = append(problems, fmt.Errorf("option MaxBodyBytes is %d: choose a number from 1 to %d, or 0 for the default",
			opts.MaxBodyBytes, maxBody))
	}
	if err := errors.Join(problems...); err != nil {
		return nil, fmt.Errorf("idempotency options: %w", err)
	}
	return &Keeper{dialect: d, opts: opts, statements: newStatements(d, opts.Schema)}, nil
}

// maxBody is what PostgreSQL takes in one field, less what the statement around it needs.
const maxBody = 256 << 20

// Do runs fn when it is the first time that operation was asked for with key, stores its response in tx, and returns it. Later it
// returns the stored response, and true, and does not run fn. Commit in both cases.
//
// The operation says what is asked for and by whom, up to 1,000 bytes; fingerprint is whatever must be the same whenever the key
// is, the request's body for example. Its SHA-256 is stored.
//
// An error of fn is returned as it is, and nothing is stored if the caller then rolls back, as it must: the next one with the key
// is the first again. So it is after a panic. Other errors: ErrKey, ErrInFlight, ErrDifferentRequest, ErrResponse, and those of
// the database.
func (k *Keeper) Do(
	ctx context.Context, tx outbox.Tx, key, operation string, fingerprint []byte, fn func(ctx context.Context) (Response, error),
) (r Response, replayed bool, err error) {
	if err := check(key, operation); err != nil {
		return Response{}, false, fmt.Errorf("idempotency: %w", err)
	}
	t, err := txn.Of(tx)
	if err != nil {
		return Response{}, false, fmt.Errorf("idempotency: %w", err)
	}
	stored, err := k.take(ctx, t, key, operation, fingerprint)
	if err != nil {
		return Response{}, false, fmt.Errorf("idempotency: claim a key of %q: %w", operation, k.explain(err))
	}
	if stored != nil {
		return *stored, true, nil
	}
	if r, err = fn(ctx); err != nil {
		return Response{}, false, err
	}
	if r.Status == 0 {
		r.Status = http.StatusOK
	}
	if err := k.keep(ctx, t, key, operation, r); err != nil {
		return Response{}, false, fmt.Errorf("idempotency: operation %q: %w", operation, err)
	}
	return r, false, nil
}

func check(key, operation string) error {
	switch {
	case key == "" || len(key) > 255 || strings.ContainsFunc(key, func(c rune) bool { return c < 0x21 || c > 0x7e }):
		return ErrKey
	case operation == "" || len(operation) > 1000:
		return fmt.Errorf("the operation has %d bytes: name what is asked for and by whom, in 1 to 1,000", len(operation))
	case !utf8.ValidString(operation) || strings.ContainsRune(operation, 0):
		return errors.New("the operation is not UTF-8, or holds a NUL character: refuse the request")
	}
	return nil
}

// take claims the key, or returns the response that is stored.
func (k *Keeper) take(ctx context.Context, t txn.Tx, key, operation string, fingerprint []byte) (stored *Response, err error) {
	sum := sha256.Sum256(fingerprint)
	args := []any{operation, key, hex.EncodeToString(sum[:]), k.opts.Keep.Milliseconds()}
	var verdict string
	read := func(scan txn.Scan) error {
		var status *int64
		var headers *string
		var body []byte
		if err := scan(&verdict, &status, &headers, &body); err != nil || verdict != "REPLAY" || status == nil || headers == nil {
			return err // without a response there is none to replay: see the last case below
		}
		stored = &Response{Status: int(*status), Header: http.Header{}, Body: append([]byte{}, body...)}
		return json.Unmarshal([]byte(*headers), &stored.Header)
	}
	if k.dialect == outbox.Postgres {
		err = t.Query(ctx, k.claim, append(args, txn.Milliseconds(k.opts.Wait)), read)
	} else if err = t.Query(ctx, k.claim, args, read); err == nil && verdict == "" {
		err = t.Query(ctx, sqliteStored, args[:3], read)
	}
	switch {
	case err != nil:
		return nil, err
	case verdict == "IN_FLIGHT":
		return nil, ErrInFlight
	case verdict == "DIFFERENT":
		return nil, ErrDifferentRequest
	case verdict != "FIRST" && stored == nil:
		return nil, fmt.Errorf("the database answered %q: do the migrations fit this program?", verdict)
	}
	return stored, nil
}

// explain adds a hint to an error of the database.
func (k *Keeper) explain(err error) error {
	switch {
	case errors.Is(err, ErrInFlight), errors.Is(err, ErrDifferentRequest):
		return err
	case k.dialect == outbox.SQLite && txn.Busy(err):
		return fmt.Errorf("%w, or another writer is at work: %w", ErrInFlight, err)
	}
	return fmt.Errorf("%w%s", err, txn.Hint(err))
}

func (k *Keeper) keep(ctx context.Context, t txn.Tx, key, operation string, r Response) error {
	if r.Status < 200 || r.Status > 599 {
		return fmt.Errorf("%w: its status is %d: return one from 200 to 599", ErrResponse, r.Status)
	}
	if len(r.Body) > k.opts.MaxBodyBytes {
		return fmt.Errorf("%w: its body has %d bytes: Options.MaxBodyBytes allows %d", ErrResponse, len(r.Body), k.opts.MaxBodyBytes)
	}
	kept := http.Header{}
	for _, name := range k.opts.Headers {
		if values := r.Header.Values(name); len(values) > 0 {
			kept[http.CanonicalHeaderKey(name)] = values
		}
	}
	headers, err := json.Marshal(kept)
	if err != nil {
		return err
	}
	body := r.Body
	if body == nil {
		body = []byte{}
	}
	stored, err := txn.Texts(ctx, t, k.store, operation, key, int64(r.Status), string(headers), body)
	if err != nil {
		return fmt.Errorf("%w%s", err, txn.Hint(err))
	}
	if len(stored) != 1 {
		return errors.New("the claim is gone: was the transaction rolled back to a savepoint?")
	}
	return nil
}

// Prune removes up to limit responses that have expired, and returns how many. Call it, each time in a transaction of its own,
// until it returns fewer than limit. Several processes may do so at the same time. 1,000 is a good limit.
func (k *Keeper) Prune(ctx context.Context, tx outbox.Tx, limit int) (int, error) {
	if limit < 1 {
		return 0, fmt.Errorf("prune responses: limit %d: choose at least 1", limit)
	}
	t, err := txn.Of(tx)
	if err != nil {
		return 0, fmt.Errorf("prune responses: %w", err)
	}
	n, err := txn.Prune(ctx, t, k.dialect, k.prune, int64(limit))
	if err != nil {
		return 0, fmt.Errorf("prune responses: %w%s", err, txn.Hint(err))
	}
	return n, nil
}
