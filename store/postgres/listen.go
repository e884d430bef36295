package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
)

// listenSQL names the channel that producers notify, with the name of their schema: all outboxes of a database share it.
const listenSQL = `listen pillarbox`

const (
	// A quiet connection is tried now and then: a network that forgot it says nothing.
	listenPing        = 30 * time.Second
	listenPingTimeout = 10 * time.Second

	// How long to wait before the next try to connect, doubling.
	reconnectFirst = 100 * time.Millisecond
	reconnectMost  = 5 * time.Second
)

// Listen implements relay.Waker, on a connection of its own that is made again when it breaks. After that the channel gets a
// value too: what was notified meanwhile is unknown.
func (s *Store) Listen(ctx context.Context) (<-chan struct{}, error) {
	conn, err := s.listen(ctx)
	if err != nil {
		return nil, s.failed("listen", err)
	}
	wake := make(chan struct{}, 1)
	go func() {
		defer close(wake)
		for conn != nil {
			s.passOn(ctx, conn, wake)
			if conn = s.relisten(ctx); conn != nil {
				notify(wake)
			}
		}
	}()
	return wake, nil
}

func (s *Store) listen(ctx context.Context) (*pgx.Conn, error) {
	conn, err := pgx.ConnectConfig(ctx, s.pool.Config().ConnConfig)
	if err != nil {
		return nil, err
	}
	if _, err := conn.Exec(ctx, listenSQL); err != nil {
		closeConn(conn)
		return nil, err
	}
	return conn, nil
}

// relisten tries until it has a connection; nil: the context has ended.
func (s *Store) relisten(ctx context.Context) *pgx.Conn {
	for wait := reconnectFirst; ; wait = min(2*wait, reconnectMost) {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(wait):
		}
		if conn, err := s.listen(ctx); err == nil {
			return conn
		}
	}
}

// passOn returns when the connection is broken or the context has ended.
func (s *Store) passOn(ctx context.Context, conn *pgx.Conn, wake chan<- struct{}) {
	defer closeConn(conn)
	for {
		quiet, cancel := context.WithTimeout(ctx, listenPing)
		n, err := conn.WaitForNotification(quiet)
		cancel()
		switch {
		case err == nil && n.Payload == s.schema:
			notify(wake)
		case err == nil: // another schema's
		case ctx.Err() != nil || conn.IsClosed() || ping(ctx, conn) != nil:
			return
		}
	}
}

func ping(ctx context.Context, conn *pgx.Conn) error {
	ctx, cancel := context.WithTimeout(ctx, listenPingTimeout)
	defer cancel()
	return conn.Ping(ctx)
}

// notify leaves a value unless one waits already.
func notify(wake chan<- struct{}) {
	select {
	case wake <- struct{}{}:
	default:
	}
}

func closeConn(conn *pgx.Conn) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = conn.Close(ctx)
}
