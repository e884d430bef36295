package inbox

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/pillarbox-dev/pillarbox/outbox"
	"github.com/pillarbox-dev/pillarbox/outbox/internal/txn"
	"github.com/pillarbox-dev/pillarbox/outbox/schema"
)

var (
	// ErrInFlight says that a twin is being handled in another transaction: answer that the sender is to try again later.
	ErrInFlight = errors.New("another transaction is handling it")
	// ErrDifferentBody says that the same event id was handled with another body. Trying again does not help.
	ErrDifferentBody = errors.New("the event id was seen with another body: the sender must give each event an id of its own")
)

// MaxBatch is the number of events that FirstOf takes at most.
const MaxBatch = 10_000

// maxText bounds a consumer's name, an event id and an aggregate's type and id, in bytes.
const maxText = 255

// Options are a consumer's settings. The zero value is right for tables in the schema public.
type Options struct {
	// Schema is the PostgreSQL schema that holds the tables. Default: public. SQLite has none: leave it empty.
	Schema string
	// Wait bounds how long a call waits for another transaction, in PostgreSQL. Default: 1 s; at most 1 min; negative: not at
	// all. A connection is held meanwhile.
	Wait time.Duration
}

// Inbox records what was handled. It holds no connection; any number of goroutines may use it.
type Inbox struct {
	dialect outbox.Dialect
	wait    int64 // milliseconds
	*statements
}

// New returns an inbox, or an error that names every problem of the options. It does not look at the database: see schema.Check.
func New(d outbox.Dialect, opts Options) (*Inbox, error) {
	if d == outbox.Postgres && opts.Schema == "" {
		opts.Schema = "public"
	}
	if opts.Wait == 0 {
		opts.Wait = txn.DefaultWait
	}
	if err := errors.Join(schema.CheckName(d, opts.Schema), txn.CheckWait(opts.Wait)); err != nil {
		return nil, fmt.Errorf("inbox options: %w", err)
	}
	return &Inbox{dialect: d, wait: txn.Milliseconds(opts.Wait), statements: newStatements(d, opts.Schema)}, nil
}

// Event is one of a batch.
type Event struct {
	ID string
	// Body is what must be the same whenever the id is.
	Body []byte
}

// First records that consumer handles an event, and tells whether it is the first time. Call it in the handler's transaction,
// before the change, and commit both together, or roll both back. Commit also when it is a duplicate, or it is not counted.
//
// It returns ErrInFlight while a twin is being handled, ErrDifferentBody when the id was handled with another body, and any
// other error from the database; PostgreSQL has then aborted the transaction.
func (i *Inbox) First(ctx context.Context, tx outbox.Tx, consumer, eventID string, body []byte) (bool, error) {
	first, err := i.FirstOf(ctx, tx, consumer, Event{eventID, body})
	if err != nil {
		return false, err
	}
	return first[0], nil
}

// FirstOf is First for a batch, in one round trip in PostgreSQL: it tells for each event, in the same order, whether it is the
// first time. Of two with the same id in the batch, the first counts.
//
// When some of the ids were seen with another body, it returns a *DifferentError, which is ErrDifferentBody and names them, and
// the answers for the others stand: a consumer may put those away and go on. After ErrInFlight nothing of the batch is recorded.
// Transactions that record batches beside others handle one batch each: two that record several may wait for each other, and
// one of them gets ErrInFlight.
func (i *Inbox) FirstOf(ctx context.Context, tx outbox.Tx, consumer string, events ...Event) ([]bool, error) {
	if err := checkEvents(consumer, events); err != nil {
		return nil, fmt.Errorf("inbox: %w", err)
	}
	t, err := txn.Of(tx)
	if err != nil {
		return nil, fmt.Errorf("inbox: %w", err)
	}
	given, hashes, different := fingerprints(events)
	verdicts := map[string]string{}
	if len(given) > 0 {
		if verdicts, err = i.record(ctx, t, consumer, given); err != nil {
			return nil, fmt.Errorf("inbox: record what %s handles: %w", consumer, i.explain(err))
		}
	}
	first := make([]bool, len(events))
	for k, e := range events {
		switch verdict := verdicts[e.ID]; {
		case verdict == isDifferent || different[k]:
			hashes[e.ID] = isDifferent
		case verdict == isFirst:
			first[k] = true
			verdicts[e.ID] = isDuplicate // for the second of the batch
		case verdict != isDuplicate:
			return nil, fmt.Errorf("inbox: the database answered %q for event %s: do the migrations fit this program?",
				verdict, e.ID)
		}
	}
	return first, differentError(events, hashes)
}

// Verdicts of outbox_inbox_first.
const (
	isFirst     = "FIRST"
	isDuplicate = "DUPLICATE"
	isDifferent = "DIFFERENT"
	isInFlight  = "IN_FLIGHT"
)

// fingerprints returns the ids with their hashes, as the database takes them, the hashes by id, and which events have an id of
// the batch with another body; those are left out.
func fingerprints(events []Event) (given [][2]string, hashes map[string]string, different map[int]bool) {
	hashes, different = make(map[string]string, len(events)), map[int]bool{}
	for k, e := range events {
		sum := sha256.Sum256(e.Body)
		text := hex.EncodeToString(sum[:])
		before, seen := hashes[e.ID]
		if different[k] = seen && before != text; different[k] {
			continue
		}
		hashes[e.ID] = text
		given = append(given, [2]string{e.ID, text})
	}
	return given, hashes, different
}

// DifferentError names the events of a batch whose id was seen with another body.
type DifferentError struct{ IDs []string }

func (e *DifferentError) Error() string {
	shown := e.IDs[:min(len(e.IDs), 10)]
	more := ""
	if rest := len(e.IDs) - len(shown); rest > 0 {
		more = fmt.Sprintf(" and %d more", rest)
	}
	return fmt.Sprintf("inbox: %s%s: %v", strings.Join(shown, ", "), more, ErrDifferentBody)
}

// Is makes errors.Is(err, ErrDifferentBody) true.
func (e *DifferentError) Is(target error) bool { return target == ErrDifferentBody } //nolint:errorlint // as errors.Is asks for

func differentError(events []Event, hashes map[string]string) error {
	var ids []string
	for _, e := range events {
		if hashes[e.ID] == isDifferent {
			ids = append(ids, e.ID)
			delete(hashes, e.ID)
		}
	}
	if ids == nil {
		return nil
	}
	return &DifferentError{ids}
}

// record runs the statements of the dialect.
func (i *Inbox) record(ctx context.Context, t txn.Tx, consumer string, given [][2]string) (map[string]string, error) {
	text, err := json.Marshal(given)
	if err != nil {
		return nil, err
	}
	verdicts := make(map[string]string, len(given))
	collect := func(scan txn.Scan) error {
		var id, verdict string
		if err := scan(&id, &verdict); err != nil {
			return err
		}
		verdicts[id] = verdict
		return nil
	}
	if i.dialect == outbox.Postgres {
		err = t.Query(ctx, i.first, []any{consumer, string(text), i.wait}, collect)
	} else if err = t.Query(ctx, i.first, []any{consumer, string(text)}, collect); err == nil && len(verdicts) < len(given) {
		fresh := verdicts
		verdicts = make(map[string]string, len(given)) // the select sees what the insert wrote
		err = t.Query(ctx, sqliteSeen, []any{consumer, string(text)}, collect)
		for id := range fresh {
			verdicts[id] = isFirst
		}
		if err == nil {
			err = countSQLite(ctx, t, consumer, given, verdicts)
		}
	}
	if verdicts[""] == isInFlight {
		return nil, ErrInFlight
	}
	return verdicts, err
}

// countSQLite counts what came again, as outbox_inbox_first does in PostgreSQL.
func countSQLite(ctx context.Context, t txn.Tx, consumer string, given [][2]string, verdicts map[string]string) error {
	var again []string
	first := map[string]bool{}
	for _, g := range given {
		switch id := g[0]; {
		case verdicts[id] == isFirst && !first[id]:
			first[id] = true
		case verdicts[id] != isDifferent:
			again = append(again, id)
		}
	}
	if len(again) == 0 {
		return nil
	}
	text, err := json.Marshal(again)
	if err != nil {
		return err
	}
	_, err = txn.Texts(ctx, t, sqliteCount, consumer, string(text))
	return err
}

// explain adds a hint to an error of the database.
func (i *Inbox) explain(err error) error {
	switch {
	case errors.Is(err, ErrInFlight):
		return err
	case i.dialect == outbox.SQLite && txn.Busy(err):
		return fmt.Errorf("%w, or another writer is at work: %w", ErrInFlight, err)
	}
	return fmt.Errorf("%w%s", err, txn.Hint(err))
}

func checkEvents(consumer string, events []Event) error {
	problems := []error{checkText("consumer", consumer)}
	if len(events) > MaxBatch {
		problems = append(problems, fmt.Errorf("%d events: pass at most %d at a time", len(events), MaxBatch))
	}
	for k, e := range events[:min(len(events), MaxBatch)] {
		if err := checkText("the id", e.ID); err != nil {
			problems = append(problems, fmt.Errorf("event %d: %w", k, err))
		}
	}
	return errors.Join(problems...)
}

// checkText: what is shown of it is its length, because it may come from anywhere.
func checkText(what, text string) error {
	switch {
	case text == "":
		return fmt.Errorf("%s is empty: name it", what)
	case len(text) > maxText:
		return fmt.Errorf("%s has %d bytes: at most %d are kept", what, len(text), maxText)
	case !utf8.ValidString(text), strings.ContainsRune(text, 0):
		return fmt.Errorf("%s is not UTF-8, or holds a NUL character: refuse it", what)
	}
	return nil
}
