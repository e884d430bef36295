package ops

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/pillarbox-dev/pillarbox/relay"
)

const (
	// jobLook is how many rows one statement looks at, whether they fit or not, jobChunk how many are changed in one transaction,
	// and jobSmall in SQLite.
	jobLook  = 5_000
	jobChunk = 5_000
	jobSmall = 500
	// What an estimate looks at and counts, at most.
	estimateLook  = 500_000
	estimateCount = 100_000
)

// candidate is a row that a job has looked at.
type candidate struct {
	seq    int64
	topic  string
	status relay.Status // "" : there is no row in the ledger
	fits   bool         // the filter, but for topics and statuses
	beyond bool         // of the log: the relay has not come to it yet; of the ledger: its event is gone
}

// candidates returns the next candidates of a job above a number, in order.
func (o *Ops) candidates(ctx context.Context, q querier, j *Job, after int64) ([]candidate, error) {
	query := o.queries.job.open
	if j.Kind == JobReplay {
		query = o.queries.job.log
	}
	f := j.Filter
	rows, err := q.QueryContext(ctx, query, f.Destination, after, j.ToSeq, jobLook,
		f.Key, f.AggregateType, f.AggregateID, f.EventType, f.ErrorCode, f.Endpoint, micros(f.Since), micros(f.Until))
	if err != nil {
		return nil, fmt.Errorf("look for deliveries of %s: %w", f.Destination, err)
	}
	defer rows.Close()
	var seen []candidate
	for rows.Next() {
		var c candidate
		if err := rows.Scan(&c.seq, &c.topic, &c.status, &c.fits, &c.beyond); err != nil {
			return nil, fmt.Errorf("look for deliveries of %s: %w", f.Destination, err)
		}
		seen = append(seen, c)
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("look for deliveries of %s: %w", f.Destination, err)
	}
	return seen, nil
}

// chosen is what a job makes of its candidates.
type chosen struct {
	rows    []int64 // to be changed
	fresh   []int64 // to get a row
	skipped int64   // they fit, and cannot be touched now
	// position is how far everything was looked at.
	position int64
}

func (c *chosen) count() int64 { return int64(len(c.rows) + len(c.fresh)) }

// choose takes at most room of the candidates, in order. wanted are the topics of the destination.
func (j *Job) choose(seen []candidate, room int64, wanted relay.Topics) chosen {
	c := chosen{position: j.ToSeq}
	for _, s := range seen {
		if c.count() == room {
			return c
		}
		c.position = s.seq
		if !s.fits || len(j.Filter.Topics) > 0 && !j.Filter.Topics.Match(s.topic) {
			continue
		}
		switch j.judge(s, wanted) {
		case touch:
			c.rows = append(c.rows, s.seq)
		case begin:
			c.fresh = append(c.fresh, s.seq)
		case skip:
			c.skipped++
		}
	}
	if c.count() < room && len(seen) < jobLook {
		c.position = j.ToSeq
	}
	return c
}

// judgement is what becomes of a candidate that fits the filter.
type judgement int

const (
	ignore judgement = iota // it is none of the job's
	touch                   // its row is changed
	begin                   // it gets a row
	skip                    // it is the job's, and cannot be touched
)

func (j *Job) judge(s candidate, wanted relay.Topics) judgement {
	asked := j.Filter.Statuses
	if s.status == "" {
		switch {
		case len(asked) > 0 || !wanted.Match(s.topic):
			return ignore
		case s.beyond: // the relay delivers it anyway
			return skip
		}
		return begin
	}
	if len(asked) == 0 {
		asked = j.Kind.statuses()
	} else if !slices.Contains(asked, s.status) {
		return ignore
	}
	if !slices.Contains(asked, s.status) || s.beyond && j.Kind != JobDiscard {
		return skip
	}
	return touch
}

// wantedTopics returns the topics of a destination. ErrUnknownDestination: it has no cursor.
func (o *Ops) wantedTopics(ctx context.Context, q querier, destination string) (topics relay.Topics, err error) {
	var text string
	err = q.QueryRowContext(ctx, o.queries.job.topics, destination).Scan(&text)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, ErrUnknownDestination
	}
	if err == nil {
		err = json.Unmarshal([]byte(text), &topics)
	}
	if err != nil {
		return nil, fmt.Errorf("read the topics of %s: %w", destination, err)
	}
	return topics, nil
}

// Estimate tells how many deliveries a job would touch if it began now. It changes nothing, and is bounded: beyond 100,000
// deliveries, or 500,000 rows that were looked at, it goes by how many of the numbers up to there fit.
func (o *Ops) Estimate(ctx context.Context, r JobRequest) (Count, error) {
	r = r.withDefaults()
	if err := refuse(r.problems()); err != nil {
		return Count{}, err
	}
	tx, err := o.beginJob(ctx, true)
	if err != nil {
		return Count{}, fmt.Errorf("estimate a job: %w", err)
	}
	defer tx.Rollback()
	topics, err := o.wantedTopics(ctx, tx, r.Filter.Destination)
	if err != nil {
		return Count{}, fmt.Errorf("estimate a job for %s: %w", r.Filter.Destination, err)
	}
	j := &Job{JobRequest: r}
	if err := o.span(ctx, tx, j); err != nil {
		return Count{}, fmt.Errorf("estimate a job for %s: %w", r.Filter.Destination, err)
	}
	n, position, err := o.countFitting(ctx, tx, j, topics)
	if err != nil {
		return Count{}, fmt.Errorf("estimate a job for %s: %w", r.Filter.Destination, err)
	}
	count := Count{N: n}
	if position < j.ToSeq {
		count.Estimated = true
		first, err := o.firstFrom(ctx, tx, j.FromSeq) // what retention has taken away says nothing about the rest
		if err != nil {
			return Count{}, fmt.Errorf("estimate a job for %s: %w", r.Filter.Destination, err)
		}
		count.N += int64(float64(n) / float64(max(position-first+1, 1)) * float64(j.ToSeq-position))
	}
	if r.MaxEvents > 0 && count.N >= r.MaxEvents {
		count = Count{N: r.MaxEvents, Estimated: n < r.MaxEvents}
	}
	return count, nil
}

// firstFrom returns the first number of the log from another one on; that one when there is none.
func (o *Ops) firstFrom(ctx context.Context, q querier, from int64) (int64, error) {
	var seq, created int64
	err := q.QueryRowContext(ctx, o.queries.seqAt.at, from).Scan(&seq, &created)
	if errors.Is(err, sql.ErrNoRows) {
		return from, nil
	}
	if err != nil {
		return 0, fmt.Errorf("look for the first event from number %d on: %w", from, err)
	}
	return seq, nil
}

// countFitting counts up to the limits of an estimate, and returns how far it has come.
func (o *Ops) countFitting(ctx context.Context, tx *sql.Tx, j *Job, topics relay.Topics) (n, position int64, err error) {
	position = j.FromSeq - 1
	for looked := 0; looked < estimateLook && n < estimateCount && position < j.ToSeq; looked += jobLook {
		seen, err := o.candidates(ctx, tx, j, position)
		if err != nil {
			return 0, 0, err
		}
		c := j.choose(seen, jobLook+1, topics)
		n += c.count()
		position = c.position
	}
	return n, position, nil
}
