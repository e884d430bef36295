package kafka

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/pillarbox-dev/pillarbox/outbox/inbox"
)

type closedConn struct{}

func (closedConn) Error() string     { return "conn closed" }
func (closedConn) SafeToRetry() bool { return true }

func TestWhoseFaultItIs(t *testing.T) {
	state := func(code string) error { return fmt.Errorf("insert: %w", &pgconn.PgError{Code: code}) }
	plain := errors.New("no such account")
	over, cancel := context.WithCancel(t.Context())
	cancel()
	for _, c := range []struct {
		name string
		got  *failure
		code string
		fate fate
	}{
		{"plain", failedHandler(t.Context(), plain, nil), CodeHandler, charged},
		{"unique violation", failedHandler(t.Context(), state("23505"), nil), CodeHandler, charged},
		{"the handler ended the transaction itself", failedHandler(t.Context(), plain, sql.ErrTxDone), CodeHandler, charged},
		{"likewise, pgx", failedHandler(t.Context(), plain, pgx.ErrTxClosed), CodeHandler, charged},
		{"its own network", failedHandler(t.Context(), &net.OpError{Err: io.EOF}, nil), CodeHandler, charged},
		{"panic", failedHandler(t.Context(), &panicked{value: 1}, nil), CodePanic, charged},
		{"time over", failedHandler(over, context.Canceled, closedConn{}), CodeTimeout, charged},
		{"reject", failedHandler(over, fmt.Errorf("x: %w", Reject("NO_ACCOUNT", plain)), nil), "NO_ACCOUNT", final},
		{"try again", failedHandler(t.Context(), TryAgain(1, nil), nil), CodeTryAgain, again},
		{"guard", failedHandler(t.Context(), inbox.ErrInFlight, nil), CodeInFlight, again},
		{"shutting down", failedHandler(t.Context(), state("57P01"), nil), CodeDatabase, again},
		{"statement timeout", failedHandler(t.Context(), state("57014"), nil), CodeHandler, charged},
		{"deadlock", failedHandler(t.Context(), state("40P01"), nil), CodeDatabase, again},
		{"disk full", failedHandler(t.Context(), state("53100"), nil), CodeDatabase, again},
		{"connection broken", failedHandler(t.Context(), plain, closedConn{}), CodeDatabase, again},
		{"bad connection", failedHandler(t.Context(), driver.ErrBadConn, nil), CodeDatabase, again},
		{"commit, deferred constraint", failedCommit(state("23503")), CodeCommit, charged},
		{"commit, swallowed error", failedCommit(pgx.ErrTxCommitRollback), CodeCommit, charged},
		{"commit, connection broken", failedCommit(fmt.Errorf("commit: %w", io.ErrUnexpectedEOF)), CodeDatabase, again},
		{"commit, connection closed", failedCommit(fmt.Errorf("commit: %w", pgconn.ErrConnClosed)), CodeDatabase, again},
		{"inbox, twin", failedInbox(fmt.Errorf("x: %w", inbox.ErrInFlight)), CodeInFlight, again},
		{"inbox, body", failedInbox(&inbox.DifferentError{IDs: []string{"e"}}), CodeDifferentBody, final},
		{"inbox, no table", failedInbox(state("42P01")), CodeDatabase, again},
	} {
		if c.got.code != c.code || c.got.fate != c.fate || c.got.Error() == "" {
			t.Errorf("%s: got %s, %d (%v); want %s, %d", c.name, c.got.code, c.got.fate, c.got, c.code, c.fate)
		}
	}
}

func TestEventID(t *testing.T) {
	id := func(values ...string) (m Message) {
		for _, v := range values {
			m.Headers = append(m.Headers, kgo.RecordHeader{Key: "eventId", Value: []byte(v)})
		}
		return m
	}
	for _, c := range []struct {
		m    Message
		code string
	}{
		{id("e1"), ""}, {id(), CodeNoEventID}, {id(""), CodeNoEventID}, {id("a", "b"), CodeBadEventID}, {id("a", "a"), CodeBadEventID},
		{id("a\x00"), CodeBadEventID}, {id("\xff"), CodeBadEventID}, {id(string(make([]byte, 256))), CodeBadEventID},
	} {
		err := c.m.identify("eventId")
		var f *failure
		if errors.As(err, &f) != (c.code != "") || f != nil && (f.code != c.code || f.fate != final) {
			t.Errorf("%q: got %v, want %q", c.m.Headers, err, c.code)
		}
	}
	m := Message{Headers: []kgo.RecordHeader{{Key: "a", Value: []byte("1")}, {Key: "a", Value: []byte("2")}}}
	if got, ok := m.Header("a"); got != "2" || !ok {
		t.Errorf("got %q, %v", got, ok)
	}
	if got, ok := m.Header("b"); got != "" || ok {
		t.Errorf("got %q, %v", got, ok)
	}
}
