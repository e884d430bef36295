package main

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5/pgxpool"
)

// spent is what a piece of work cost besides its time.
type spent struct {
	walBytes int64
	cpu      cpuTime
}

// meter reads off what is spent from its start on.
type meter struct {
	session *session
	pool    *pgxpool.Pool
	before  spent
}

func (s *session) startMeter(ctx context.Context, pool *pgxpool.Pool) (*meter, error) {
	m := &meter{session: s, pool: pool}
	var err error
	m.before, err = m.read(ctx)
	return m, err
}

// stop returns what was spent. Connections that did the work may be open or closed.
func (m *meter) stop(ctx context.Context) (spent, error) {
	now, err := m.read(ctx)
	return spent{walBytes: now.walBytes - m.before.walBytes, cpu: now.cpu.since(m.before.cpu)}, err
}

func (m *meter) read(ctx context.Context) (now spent, err error) {
	const position = "select pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::bigint"
	if err := m.pool.QueryRow(ctx, position).Scan(&now.walBytes); err != nil {
		return now, fmt.Errorf("read the WAL position: %w", err)
	}
	now.cpu, err = m.session.cpu()
	return now, err
}
