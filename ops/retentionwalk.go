package ops

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"time"
)

// anyRule stands for all rules at once.
const anyRule = -1

// walk goes through a stretch of the log, by its numbers, and takes away what is old enough.
type walk struct {
	*Ops
	config  RetentionConfig
	report  RetentionReport
	began   time.Time
	now     time.Time // the database's, when it began
	ends    []int64   // of each rule: nothing above it is old enough
	ledgers string    // a JSON list of the destinations that had one when it began; one that begins later has a cursor
	// position is how far the last stretch was gone through.
	position int64
	reach    int // how many rows the next look takes: more where less is to be taken away
	saved    time.Time
	rested   time.Time // when the last rest ended
}

// newWalk looks at how far it may go.
func (o *Ops) newWalk(ctx context.Context, c RetentionConfig) (*walk, error) {
	c = c.withDefaults()
	if err := refuse(c.problems()); err != nil {
		return nil, err
	}
	w := &walk{Ops: o, config: c, began: time.Now(), ends: make([]int64, len(c.Rules)), reach: c.Chunk}
	if err := w.open(ctx); err != nil {
		return nil, fmt.Errorf("retention: %w%s", err, rightsHint(err))
	}
	return w, nil
}

func (w *walk) open(ctx context.Context) error {
	tx, err := w.beginJob(ctx, true)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if err := w.horizon(ctx, tx); err != nil || w.report.Horizon == 0 {
		return err
	}
	for i, rule := range w.config.Rules {
		from, err := w.createdFrom(ctx, tx, w.now.Add(-rule.After-retentionSpare), w.report.Horizon)
		if err != nil {
			return err
		}
		w.ends[i] = from - 1
	}
	return w.findLedgers(ctx, tx)
}

// findLedgers looks which destinations have a row in the ledger.
func (w *walk) findLedgers(ctx context.Context, tx *sql.Tx) error {
	ledgers, err := texts(ctx, tx, w.queries.retention.ledgers)
	if err != nil {
		return fmt.Errorf("look for ledgers: %w", err)
	}
	w.ledgers = jsonList(ledgers)
	return nil
}

// horizon finds the number above which nothing is touched.
func (w *walk) horizon(ctx context.Context, q querier) error {
	rows, err := q.QueryContext(ctx, w.queries.retention.ends)
	if err != nil {
		return fmt.Errorf("read the cursors: %w", err)
	}
	defer rows.Close()
	missing := slices.Clone(w.config.Destinations)
	first := true
	for rows.Next() {
		var name string
		var position, now int64
		var isDestination bool
		if err := rows.Scan(&name, &position, &isDestination, &now); err != nil {
			return fmt.Errorf("read the cursors: %w", err)
		}
		w.now = time.UnixMicro(now).UTC()
		if isDestination {
			missing = slices.DeleteFunc(missing, func(d string) bool { return d == name })
		}
		if first || position < w.report.Horizon {
			w.report.Horizon, w.report.HeldBy = position, name
		}
		first = false
	}
	if len(missing) > 0 {
		w.report.Horizon, w.report.HeldBy = 0, missing[0]
	}
	return rows.Err()
}

// to is where the walk of a rule ends.
func (w *walk) to(rule int) int64 {
	if rule == anyRule {
		return slices.Max(w.ends)
	}
	return w.ends[rule]
}

// walk goes from behind a number to another one. save, unless nil, is told now and then how far it has come.
func (w *walk) walk(ctx context.Context, rule int, after, to int64, save func(context.Context, int64) error) error {
	w.position, w.saved = after, time.Now()
	for w.position < to {
		w.rested = time.Now()
		gone, err := w.chunk(ctx, rule, to)
		if err != nil {
			return fmt.Errorf("retention: behind number %d: %w%s", w.position, err, rightsHint(err))
		}
		if save != nil && time.Since(w.saved) >= stateEvery {
			if err := save(ctx, w.position); err != nil {
				return err
			}
			w.saved = time.Now()
		}
		if !gone {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			continue
		}
		if err := w.rest(ctx); err != nil {
			return err
		}
	}
	return nil
}

// rests is how many rests a chunk has: after each statement in PostgreSQL, so that none of the producers waits for a processor for
// longer than one of them takes; in SQLite, where they wait for the transaction, when it has ended.
func (w *walk) rests() time.Duration {
	if w.isPostgres() {
		return 5
	}
	return 1
}

// rest is one of them. It is at least as long as what was done since the last one: a database that is slow now has other things to
// do.
func (w *walk) rest(ctx context.Context) error {
	if w.config.Pause > 0 {
		select {
		case <-ctx.Done():
		case <-time.After(max(w.config.Pause/w.rests(), time.Since(w.rested))):
		}
	}
	w.rested = time.Now()
	return context.Cause(ctx)
}

// restWithin is a rest in the midst of a transaction.
func (w *walk) restWithin(ctx context.Context) error {
	if w.rests() == 1 || w.config.DryRun {
		return context.Cause(ctx)
	}
	return w.rest(ctx)
}

// old is an event that its rule is done with.
type old struct {
	seq  int64
	rule int
}

// chunk is one transaction. gone says that it took something away.
func (w *walk) chunk(ctx context.Context, rule int, to int64) (gone bool, err error) {
	tx, err := w.beginJob(ctx, w.config.DryRun)
	if err != nil {
		return false, err
	}
	defer tx.Rollback() // after a commit it does nothing
	if lazy := w.queries.retention.lazy; lazy != "" {
		if _, err := tx.ExecContext(ctx, lazy); err != nil {
			return false, err
		}
	}
	found, position, err := w.look(ctx, tx, rule, to)
	if err != nil {
		return false, fmt.Errorf("look at the log: %w", err)
	}
	report := w.report
	if len(found) > 0 {
		if err := w.restWithin(ctx); err != nil {
			return false, err
		}
		if err := w.takeAway(ctx, tx, found, &report); err != nil {
			return false, err
		}
	}
	if !w.config.DryRun {
		if err := tx.Commit(); err != nil {
			return false, err
		}
	}
	gone = report.Events > w.report.Events
	w.report, w.position = report, position
	return gone, nil
}

// look finds the next events that are old enough, at most a chunk, and how far it has looked.
func (w *walk) look(ctx context.Context, tx *sql.Tx, rule int, to int64) (found []old, position int64, err error) {
	rows, err := tx.QueryContext(ctx, w.queries.retention.look, w.position, to, w.reach)
	if err != nil {
		return nil, 0, err
	}
	defer rows.Close()
	seen := 0
	for rows.Next() {
		var topic string
		var seq, created int64
		if err := rows.Scan(&seq, &topic, &created); err != nil {
			return nil, 0, err
		}
		seen++
		position = seq
		mine := w.config.rule(topic)
		if mine < 0 || rule != anyRule && mine != rule || w.now.Sub(time.UnixMicro(created)) <= w.config.Rules[mine].After {
			continue
		}
		if found = append(found, old{seq, mine}); len(found) == w.config.Chunk {
			w.reach = w.config.Chunk
			return found, position, nil
		}
	}
	if seen < w.reach {
		position = to
	}
	w.reach = max(min(2*w.reach, retentionLook), w.config.Chunk)
	return found, position, rows.Err()
}

// takeAway deletes or moves those that every destination is done with.
func (w *walk) takeAway(ctx context.Context, tx *sql.Tx, found []old, report *RetentionReport) error {
	seqs := make([]int64, len(found))
	archive := map[int64]bool{}
	for i, f := range found {
		seqs[i] = f.seq
		if w.config.Rules[f.rule].Archive {
			archive[f.seq] = true
		}
	}
	q := &w.queries.retention
	free := seqs
	var err error
	if !w.config.DryRun {
		if free, err = numbers(ctx, tx, q.hold, jsonList(seqs)); err != nil {
			return fmt.Errorf("lock the events: %w", err)
		}
		if err := w.restWithin(ctx); err != nil {
			return err
		}
	}
	if len(free) > 0 {
		if free, err = numbers(ctx, tx, q.settled, jsonList(free), w.ledgers); err != nil {
			return fmt.Errorf("see which events are settled: %w", err)
		}
	}
	var moved []int64
	for _, seq := range free {
		if archive[seq] {
			moved = append(moved, seq)
		}
	}
	report.Kept += int64(len(found) - len(free))
	report.Events += int64(len(free))
	report.Archived += int64(len(moved))
	if w.config.DryRun || len(free) == 0 {
		return nil
	}
	if err := w.restWithin(ctx); err != nil {
		return err
	}
	return w.remove(ctx, tx, moved, free)
}

// remove copies some of the events to the archive and deletes all of them, each with its deliveries.
func (w *walk) remove(ctx context.Context, tx *sql.Tx, moved, all []int64) error {
	q := &w.queries.retention
	if len(moved) > 0 {
		if _, err := tx.ExecContext(ctx, q.archiveEvents, jsonList(moved)); err != nil {
			return fmt.Errorf("move events to the archive: %w", err)
		}
		if _, err := tx.ExecContext(ctx, q.archiveDeliveries, jsonList(moved), w.ledgers); err != nil {
			return fmt.Errorf("move deliveries to the archive: %w", err)
		}
	}
	if _, err := tx.ExecContext(ctx, q.deleteDeliveries, jsonList(all), w.ledgers); err != nil {
		return fmt.Errorf("delete deliveries: %w", err)
	}
	if err := w.restWithin(ctx); err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, q.deleteEvents, jsonList(all)); err != nil {
		return fmt.Errorf("delete events: %w", err)
	}
	return nil
}

// texts runs a query that returns one column of text.
func texts(ctx context.Context, q querier, query string, args ...any) ([]string, error) {
	rows, err := q.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var all []string
	for rows.Next() {
		var text string
		if err := rows.Scan(&text); err != nil {
			return nil, err
		}
		all = append(all, text)
	}
	return all, rows.Err()
}
