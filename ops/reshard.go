package ops

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/pillarbox-dev/pillarbox/relay"
)

// Resharding is what Reshard did.
type Resharding struct {
	// From and To are the numbers of shards before and after it.
	From int `json:"from"`
	To   int `json:"to"`
	// Position is where all of them begin: that of the slowest one before. Apart is how far ahead of it the fastest one was.
	Position int64 `json:"position"`
	Apart    int64 `json:"apart"`
}

// Reshard divides a destination into another number of shards. Nothing is lost, nothing leaves its order, and what was settled is not
// delivered again: the ledger knows it.
//
// No relay may work on the destination, and those that begin again must be configured for the new number.
func (o *Ops) Reshard(ctx context.Context, destination string, shards int, a Action) (Resharding, error) {
	r := Resharding{To: shards}
	if err := a.check(true); err != nil {
		return r, err
	}
	err := o.reshard(ctx, destination, &r, a)
	if err != nil {
		err = fmt.Errorf("reshard %s: %w%s", destination, err, rightsHint(err))
	}
	return r, err
}

func (o *Ops) reshard(ctx context.Context, destination string, r *Resharding, a Action) error {
	switch {
	case !o.isPostgres():
		return &RefusedError{"SQLite has one writer, so a destination has one shard there"}
	case r.To < 1 || r.To > relay.MaxShards:
		return &RefusedError{fmt.Sprintf("a destination has 1 to %d shards, not %d", relay.MaxShards, r.To)}
	}
	var look, change, drop string
	if err := fill(o.dialect, o.schemaName, map[string]*string{
		"reshard_look": &look, "reshard": &change, "reshard_drop": &drop,
	}); err != nil {
		return err
	}
	tx, err := o.db.BeginTx(ctx, &sql.TxOptions{Isolation: o.queries.change})
	if err != nil {
		return err
	}
	defer tx.Rollback() // after a commit it does nothing
	if err := r.look(ctx, tx, look, destination); err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, change, destination, r.To, relay.IsolateAfter-1); err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, drop, destination, r.To); err != nil {
		return err
	}
	if err := o.record(ctx, tx, "reshard", destination, a, map[string]int{"shards": r.From}, r); err != nil {
		return err
	}
	return tx.Commit()
}

// look finds how far the shards have come, and makes sure that nobody works on them, nor begins to.
func (r *Resharding) look(ctx context.Context, tx *sql.Tx, query, destination string) error {
	var worker string
	furthest := int64(0)
	err := each(ctx, tx, query, []any{destination}, func(scan func(...any) error) error {
		var position int64
		var owner string
		if err := scan(&position, &owner); err != nil {
			return err
		}
		if r.From == 0 || position < r.Position {
			r.Position = position
		}
		furthest = max(furthest, position)
		worker = max(worker, owner)
		r.From++
		return nil
	})
	r.Apart = furthest - r.Position
	switch {
	case err != nil:
		return err
	case r.From == 0:
		return ErrUnknownDestination
	case worker != "":
		return refuseWorker(worker)
	case r.From == r.To:
		return &RefusedError{fmt.Sprintf("the number of its shards is %d already", r.From)}
	}
	return nil
}
