package audit

import (
	"bytes"
	"context"
	"crypto/sha256"
	"database/sql"
	"errors"
	"fmt"
)

const tables = `
create table if not exists entry (
  number        integer primary key autoincrement,
  event_id      text    not null unique,
  body          blob    not null,
  previous_hash blob    not null,
  hash          blob    not null,                      -- SHA-256 of previous_hash and body
  times         integer not null default 1             -- that it arrived
) strict;`

const (
	arrivedAgain = `update entry set times = times + 1 where event_id = ?1 returning body`
	lastHash     = `select hash from entry order by number desc limit 1`
	appendEntry  = `insert into entry (event_id, body, previous_hash, hash) values (?1, ?2, ?3, ?4)`
	readChain    = `select number, event_id, body, previous_hash, hash, times from entry order by number`
)

// errOtherBody says that an id came again with another body.
var errOtherBody = errors.New("the id was seen with another body")

// add chains an event, or finds that it is there.
func add(ctx context.Context, db *sql.DB, id string, body []byte) (duplicate bool, err error) {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return false, err
	}
	defer tx.Rollback() // after a commit it does nothing
	var before []byte
	switch err := tx.QueryRowContext(ctx, arrivedAgain, id).Scan(&before); {
	case err == nil && !bytes.Equal(before, body):
		return false, errOtherBody
	case err == nil:
		return true, tx.Commit()
	case !errors.Is(err, sql.ErrNoRows):
		return false, err
	}
	previous := []byte{}
	if err := tx.QueryRowContext(ctx, lastHash).Scan(&previous); err != nil && !errors.Is(err, sql.ErrNoRows) {
		return false, err
	}
	if _, err := tx.ExecContext(ctx, appendEntry, id, body, previous, hashOf(previous, body)); err != nil {
		return false, err
	}
	return false, tx.Commit()
}

func hashOf(previous, body []byte) []byte {
	h := sha256.New()
	h.Write(previous)
	h.Write(body)
	return h.Sum(nil)
}

// Entry is a link of the chain.
type Entry struct {
	Number  int64
	EventID string
	Body    []byte
	// Times is how often it arrived.
	Times int
}

// ErrBroken says that the chain does not hold.
var ErrBroken = errors.New("the chain is broken")

// Verify goes through the whole chain and returns its entries, in order. When it is broken the error says where.
func Verify(ctx context.Context, db *sql.DB) (all []Entry, err error) {
	rows, err := db.QueryContext(ctx, readChain)
	if err != nil {
		return nil, fmt.Errorf("read the chain: %w", err)
	}
	defer rows.Close()
	last := []byte{}
	for rows.Next() {
		var e Entry
		var previous, hash []byte
		if err := rows.Scan(&e.Number, &e.EventID, &e.Body, &previous, &hash, &e.Times); err != nil {
			return nil, fmt.Errorf("read the chain: %w", err)
		}
		if !bytes.Equal(previous, last) || !bytes.Equal(hash, hashOf(previous, e.Body)) {
			return nil, fmt.Errorf("%w at entry %d", ErrBroken, e.Number)
		}
		last = hash
		all = append(all, e)
	}
	return all, rows.Err()
}
