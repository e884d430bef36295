package ops

import (
	"context"
	"database/sql"
	"fmt"
	"math"
	"slices"

	"github.com/pillarbox-dev/pillarbox/relay"
)

// listTexts are the statements of a list.
type listTexts struct {
	plan, cursors, open, ledger, log, gaps, gapRows, deliveries string
}

func (o *Ops) listTexts(p Page) (t listTexts, err error) {
	texts := map[string]*string{
		"events_cursors": &t.cursors, "events_open": &t.open, "events_ledger": &t.ledger, "events_log": &t.log,
		"deliveries": &t.deliveries,
	}
	if o.isPostgres() {
		texts["plan"], texts["events_gaps"], texts["events_gap_rows"] = &t.plan, &t.gaps, &t.gapRows
	}
	err = fill(o.dialect, o.schemaName, texts)
	for _, text := range texts {
		*text = direct(*text, p.direction())
	}
	return t, err
}

// List returns deliveries, the newest first unless the page says otherwise. It is cheap however much there is: it looks at a
// bounded number of candidates and goes on with the next page. Events that nobody delivers, because no relay has ever worked on a
// destination, are not in it; nor are those that retention has moved to the archive.
func (o *Ops) List(ctx context.Context, f Filter, p Page) (DeliveryPage, error) {
	if err := refuse(slices.Concat(f.problems(), p.problems())); err != nil {
		return DeliveryPage{}, fmt.Errorf("list deliveries: %w", err)
	}
	page, err := o.list(ctx, f, p)
	if err != nil {
		return DeliveryPage{}, fmt.Errorf("list deliveries: %w", err)
	}
	return page, nil
}

func (o *Ops) list(ctx context.Context, f Filter, p Page) (page DeliveryPage, err error) {
	f.Since, f.Until = f.Since.UTC(), f.Until.UTC()
	name, err := listName("deliveries", f, p)
	if err != nil {
		return page, err
	}
	at, goesOn, err := p.after(name)
	if err != nil {
		return page, err
	}
	texts, err := o.listTexts(p)
	if err != nil {
		return page, err
	}
	tx, err := o.look(ctx, texts.plan)
	if err != nil {
		return page, err
	}
	defer tx.Rollback()
	l := &lister{tx: tx, texts: texts, oldestFirst: p.OldestFirst, budget: maxCandidates}
	if err := o.openStreams(ctx, l, f); err != nil {
		return page, err
	}
	if goesOn {
		for _, s := range l.streams {
			l.within(s, at)
		}
	}
	entries, rest, err := l.take(ctx, p.limit())
	if err != nil {
		return page, err
	}
	page.Deliveries = entries
	if rest != nil {
		rest.List = name
		page.Next = rest.String()
	}
	return page, nil
}

// look begins a transaction that only reads, on one snapshot, with the indexes for a plan.
func (o *Ops) look(ctx context.Context, plan string) (*sql.Tx, error) {
	tx, err := o.db.BeginTx(ctx, &sql.TxOptions{Isolation: o.queries.isolation, ReadOnly: true})
	if err != nil || plan == "" {
		return tx, err
	}
	if _, err := tx.ExecContext(ctx, plan); err != nil {
		_ = tx.Rollback()
		return nil, err
	}
	return tx, nil
}

// openStreams finds the parts of the log and the ledgers in which something fits the filter.
func (o *Ops) openStreams(ctx context.Context, l *lister, f Filter) error {
	cursors, err := lookAtCursors(ctx, l.tx, l.texts.cursors, f.Destination, 0)
	if err != nil {
		return err
	}
	if f.Destination != "" && len(cursors) == 0 {
		return fmt.Errorf("%s: %w", f.Destination, ErrUnknownDestination)
	}
	low, high, err := o.stretch(ctx, l.tx, f)
	if err != nil {
		return err
	}
	for i := range cursors {
		l.openFor(&cursors[i], f, low, high)
	}
	return nil
}

// createdApartRows is how far the order of created_at may be from that of the numbers, as far as a list goes: events that many
// producers wrote at once. A stretch of time would be many pages of nothing in an outbox where much is written.
const createdApartRows = 2000

// stretch is the part of the log that a filter allows; a little more at the ends of a span of time. Events that were given a
// created_at of their own, out of the order of the log, may be missed.
func (o *Ops) stretch(ctx context.Context, tx *sql.Tx, f Filter) (low, high int64, err error) {
	low, high = max(f.FromSeq, 1), int64(math.MaxInt64-1)
	if f.ToSeq > 0 {
		high = f.ToSeq
	}
	if f.Since.IsZero() && f.Until.IsZero() {
		return low, high, nil
	}
	var last int64
	if err := tx.QueryRowContext(ctx, o.queries.seqAt.last).Scan(&last); err != nil {
		return 0, 0, fmt.Errorf("read the last number of the log: %w", err)
	}
	if !f.Since.IsZero() {
		first, err := o.createdFrom(ctx, tx, f.Since, last)
		if err != nil {
			return 0, 0, err
		}
		low = max(low, first-createdApartRows)
	}
	if !f.Until.IsZero() {
		end, err := o.createdFrom(ctx, tx, f.Until, last)
		if err != nil {
			return 0, 0, err
		}
		high = min(high, end+createdApartRows)
	}
	return low, high, nil
}

// openFor adds the streams of one destination.
func (l *lister) openFor(c *cursor, f Filter, low, high int64) {
	add := func(s stream, low, high int64) {
		s.cursor, s.low, s.high = c, low, high
		l.streams = append(l.streams, &s)
	}
	wants := func(s relay.Status) bool { return len(f.Statuses) == 0 || slices.Contains(f.Statuses, s) }

	rows := looking{rows: "row", Filter: f}
	if len(f.Statuses) == 0 {
		add(stream{looking: rows, candidates: l.ledgerCandidates}, low, high)
	}
	rows.Statuses = nil
	for _, status := range f.Statuses {
		if status == relay.StatusPublished || status == relay.StatusDiscarded {
			rows.Statuses = append(rows.Statuses, status)
			continue
		}
		open := looking{rows: "row", Filter: f}
		open.Statuses = []relay.Status{status}
		add(stream{looking: open, candidates: l.openCandidates, status: string(status)}, low, high)
	}
	if len(rows.Statuses) > 0 {
		add(stream{looking: rows, candidates: l.ledgerCandidates}, low, high)
	}

	if f.ErrorCode != "" || f.Endpoint != "" {
		return // what has no row has neither
	}
	log := looking{rows: "none", topics: c.topics, Filter: f}
	log.Statuses = nil
	from, to := c.position+1, int64(math.MaxInt64-1)
	above := stream{looking: log, candidates: l.logCandidates}
	switch {
	case len(c.shards) > 1:
		above.wants = wants
	case !wants(relay.StatusPublishing):
		from = max(from, c.leasedTo()+1)
	}
	if !wants(relay.StatusPending) {
		to = c.leasedTo()
	}
	add(above, max(low, from), min(high, to))
	if c.gaps && wants(relay.StatusPending) {
		add(stream{looking: log, candidates: l.gapCandidates}, low, min(high, c.position))
	}
}
