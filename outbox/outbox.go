package outbox

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/pillarbox-dev/pillarbox/outbox/schema"
)

// Dialect is the database that the service's transactions run in.
type Dialect = schema.Dialect

const (
	Postgres = schema.Postgres // PostgreSQL 14 or later
	SQLite   = schema.SQLite   // SQLite 3.38 or later
)

// Options are a service's settings. The zero value is right for tables in the schema public. Zero numbers mean the default.
type Options struct {
	// Schema is the PostgreSQL schema that holds the tables. Default: public. SQLite has none: leave it empty.
	Schema string

	// MaxPayloadBytes bounds an event's payload. Default: 1 MiB, which is also what a Kafka broker takes unless told otherwise.
	MaxPayloadBytes int
	// MaxHeaders bounds the number of an event's headers. Default: 64.
	MaxHeaders int
	// MaxHeaderValueBytes bounds one header's value. Default: 4 KiB.
	MaxHeaderValueBytes int
	// MaxHeaderBytes bounds the names and values of an event together. Default: 8 KiB, which HTTP servers take.
	MaxHeaderBytes int

	// NoNotify keeps Enqueue from waking a sleeping relay with NOTIFY; the relay's poll then finds the event, at the latest after
	// 250 ms by default. Needed for PREPARE TRANSACTION.
	NoNotify bool

	// Trace adds the caller's trace context to the events of one call, as headers: it calls set for each, for example with
	// traceparent. A header that the event has itself wins. What is not valid, or does not fit the limits, is left out: telemetry
	// never fails a business transaction.
	Trace func(ctx context.Context, set func(name, value string))

	// Now and Random make event ids. Default: time.Now and crypto/rand.Reader.
	Now    func() time.Time
	Random io.Reader
}

// Outbox writes events. It holds no connection; any number of goroutines may use it.
type Outbox struct {
	dialect    Dialect
	opts       Options
	ids        *idSource
	statements *statements
}

// New returns an outbox, or an error that names every problem of the options. It does not look at the database: see
// schema.Check.
func New(d Dialect, opts Options) (*Outbox, error) {
	opts.setDefaults(d)
	if err := opts.check(d); err != nil {
		return nil, fmt.Errorf("outbox options: %w", err)
	}
	return &Outbox{
		dialect:    d,
		opts:       opts,
		ids:        &idSource{now: opts.Now, random: opts.Random},
		statements: newStatements(d, opts),
	}, nil
}

func (o *Options) setDefaults(d Dialect) {
	if d == Postgres && o.Schema == "" {
		o.Schema = "public"
	}
	for _, limit := range []struct {
		value   *int
		without int
	}{
		{&o.MaxPayloadBytes, 1 << 20}, {&o.MaxHeaders, 64}, {&o.MaxHeaderValueBytes, 4 << 10}, {&o.MaxHeaderBytes, 8 << 10},
	} {
		if *limit.value == 0 {
			*limit.value = limit.without
		}
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Random == nil {
		o.Random = rand.Reader
	}
}

// maxPayload is what PostgreSQL takes in one field, less what the statement around it needs.
const maxPayload = 256 << 20

func (o *Options) check(d Dialect) error {
	problems := []error{schema.CheckName(d, o.Schema)}
	for _, limit := range []struct {
		name       string
		value, max int
	}{
		{"MaxPayloadBytes", o.MaxPayloadBytes, maxPayload},
		{"MaxHeaders", o.MaxHeaders, 1000},
		{"MaxHeaderValueBytes", o.MaxHeaderValueBytes, 1 << 20},
		{"MaxHeaderBytes", o.MaxHeaderBytes, 1 << 20},
	} {
		if limit.value < 0 || limit.value > limit.max {
			problems = append(problems, fmt.Errorf("%s is %d: choose a number from 1 to %d, or 0 for the default",
				limit.name, limit.value, limit.max))
		}
	}
	return errors.Join(problems...)
}
