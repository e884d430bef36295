package ops

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/pillarbox-dev/pillarbox/relay"
)

// RetentionRule says how long the events of some topics are kept.
type RetentionRule struct {
	// Topics are patterns; none: every topic.
	Topics relay.Topics `json:"topics,omitempty"`
	// After is the age, by created_at and the database's clock, at which an event goes. Required.
	After time.Duration `json:"after"`
	// Archive moves the event and its deliveries to the archive tables, instead of deleting them.
	Archive bool `json:"archive,omitempty"`
}

// RetentionConfig is what Retain goes by.
type RetentionConfig struct {
	// Rules: the first one whose topics match counts; what none matches is kept for ever. At least one, at most MaxRules.
	Rules []RetentionRule
	// Destinations must all have begun before anything is deleted, besides those that have: one that is new starts at the
	// beginning of the log, and would miss what was deleted.
	Destinations []string
	// Chunk is how many events go in one transaction. Default 200, at most 10,000.
	Chunk int
	// Pause is how long it rests for each chunk, in PostgreSQL in five parts, between its statements; at least as long as it works.
	// Default 80 ms; less than 0: none.
	Pause time.Duration
	// DryRun looks and counts, and deletes nothing.
	DryRun bool
}

const (
	// MaxRules is how many rules there may be, MaxRetentionChunk how many events go in one transaction at most.
	MaxRules          = 100
	MaxRetentionChunk = 10_000

	retentionName  = "retention"
	retentionChunk = 200
	retentionPause = 80 * time.Millisecond
	retentionLook  = 5_000           // rows that one statement looks at, at most
	retentionSpare = createdApart    // events that are hardly old enough are left to the next run, see createdBetween
	sweepEvery     = 24 * time.Hour  // see retentionState
	stateEvery     = 5 * time.Second // how often a run writes down how far it has come
)

type retentionQueries struct {
	lazy                                                                                                 string // PostgreSQL alone
	ends, ledgers, look, hold, settled, archiveEvents, archiveDeliveries, deleteDeliveries, deleteEvents string
}

func (q *retentionQueries) files() map[string]*string {
	return map[string]*string{
		"retention_ends": &q.ends, "retention_ledgers": &q.ledgers, "retention_look": &q.look, "retention_hold": &q.hold,
		"retention_settled": &q.settled, "retention_archive_events": &q.archiveEvents,
		"retention_archive_deliveries": &q.archiveDeliveries, "retention_delete_deliveries": &q.deleteDeliveries,
		"retention_delete_events": &q.deleteEvents,
	}
}

func (c RetentionConfig) withDefaults() RetentionConfig {
	if c.Chunk == 0 {
		c.Chunk = retentionChunk
	}
	if c.Pause == 0 {
		c.Pause = retentionPause
	}
	return c
}

func (c RetentionConfig) problems() (problems []error) {
	bad := func(format string, args ...any) { problems = append(problems, fmt.Errorf(format, args...)) }
	if len(c.Rules) == 0 || len(c.Rules) > MaxRules {
		bad("retention has %d rules: it can have 1 to %d", len(c.Rules), MaxRules)
	}
	for i, rule := range c.Rules {
		if rule.After <= 0 {
			bad("retention rule %d keeps events for %v: say for how long, more than 0", i+1, rule.After)
		}
		if len(rule.Topics) == 0 && i < len(c.Rules)-1 {
			bad("retention rule %d is for every topic, so those behind it are never reached: put it last", i+1)
		}
		if slices.Contains(rule.Topics, "") {
			bad("retention rule %d has an empty topic: leave it out, or use *", i+1)
		}
	}
	if c.Chunk < 1 || c.Chunk > MaxRetentionChunk {
		bad("retention deletes %d events at once: it can be 1 to %d", c.Chunk, MaxRetentionChunk)
	}
	return problems
}

// rule returns the number of the rule for a topic; -1: none, it is kept.
func (c RetentionConfig) rule(topic string) int {
	return slices.IndexFunc(c.Rules, func(r RetentionRule) bool { return r.Topics.Match(topic) })
}

// Retain deletes, or moves to the archive, what is older than its rule says, in small transactions, until nothing is left. Only
// what every destination is done with goes: what lies below all cursors and in no gap, with no row that is not PUBLISHED or
// DISCARDED, and that no replay still wants. FAILED and QUARANTINED stay, however old. Producers never wait for it in
// PostgreSQL; in SQLite, which has one writer, for a chunk at most.
//
// It looks at the whole log. RetentionTask does the same on a schedule and remembers where it was.
func (o *Ops) Retain(ctx context.Context, c RetentionConfig) (RetentionReport, error) {
	report, err := o.retain(ctx, c)
	return report, whyEnded(ctx, err)
}

// whyEnded returns the cause of a context that has ended instead of what a statement said of it: that its transaction or connection is
// gone.
func whyEnded(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

func (o *Ops) retain(ctx context.Context, c RetentionConfig) (RetentionReport, error) {
	w, err := o.newWalk(ctx, c)
	if err != nil {
		return RetentionReport{}, err
	}
	if err := w.walk(ctx, anyRule, 0, w.to(anyRule), nil); err != nil {
		return w.report, err
	}
	w.report.Finished = true
	w.report.Took = time.Since(w.began)
	return w.report, nil
}

// retentionState is what the task keeps in mind from run to run, so that what is kept is not looked at again each time: five
// million events that no rule is for cost nothing. Each rule has a walk of its own, from where the last one ended to what is old
// enough by now. What was passed over, since it was not settled or its time was out of order, is found by a sweep over
// the whole log, once a day.
type retentionState struct {
	// Rules are those that the positions were reached by. With others everything is looked at anew.
	Rules []RetentionRule `json:"rules"`
	// Passed is how far each rule has come.
	Passed []int64 `json:"passed"`
	// Swept is how far the sweep has come that is under way, 0: there is none; SweptAt when the last one began.
	Swept   int64     `json:"swept,omitempty"`
	SweptAt time.Time `json:"swept_at,omitzero"`
	// Last is what the last run did.
	Last *RetentionReport `json:"last,omitempty"`
}

// RetentionTask is Retain on a schedule, for RunTasks. done is told what each run did; nil: nobody.
func (o *Ops) RetentionTask(every time.Duration, c RetentionConfig, done func(RetentionReport)) Task {
	return Task{Name: retentionName, Every: every, Run: func(ctx context.Context) error {
		report, err := o.retainOn(ctx, c)
		if err == nil && done != nil {
			done(report)
		}
		return whyEnded(ctx, err)
	}}
}

// retainOn is one run of the task.
func (o *Ops) retainOn(ctx context.Context, c RetentionConfig) (RetentionReport, error) {
	w, err := o.newWalk(ctx, c)
	if err != nil {
		return RetentionReport{}, err
	}
	state, err := o.loadRetention(ctx, c.Rules)
	if err != nil {
		return RetentionReport{}, err
	}
	if err := o.sweep(ctx, w, state); err != nil {
		return w.report, err
	}
	for i := range state.Passed {
		err := w.walk(ctx, i, state.Passed[i], w.to(i), func(ctx context.Context, position int64) error {
			state.Passed[i] = position
			return o.storeRetention(ctx, state)
		})
		if err != nil {
			return w.report, err
		}
		state.Passed[i] = w.position
	}
	w.report.Finished, w.report.Took = true, time.Since(w.began)
	state.Last = &w.report
	return w.report, o.storeRetention(ctx, state)
}

// sweep goes through the whole log when that is due, or goes on with it.
func (o *Ops) sweep(ctx context.Context, w *walk, state *retentionState) error {
	if state.Swept == 0 {
		if w.now.Sub(state.SweptAt) < sweepEvery {
			return nil
		}
		state.SweptAt = w.now
	}
	err := w.walk(ctx, anyRule, state.Swept, w.to(anyRule), func(ctx context.Context, position int64) error {
		state.Swept = position
		return o.storeRetention(ctx, state)
	})
	if err != nil {
		return err
	}
	state.Swept = 0
	for i := range state.Passed {
		state.Passed[i] = max(state.Passed[i], w.to(i))
	}
	return nil
}

// loadRetention returns the state of the task, anew when the rules have changed.
func (o *Ops) loadRetention(ctx context.Context, rules []RetentionRule) (*retentionState, error) {
	var state retentionState
	tx, err := o.db.BeginTx(ctx, o.readCommitted())
	if err != nil {
		return nil, fmt.Errorf("load the state of retention: %w", err)
	}
	defer tx.Rollback() // after a commit it does nothing
	if err := o.LoadState(ctx, tx, retentionName, &state); err != nil {
		return nil, err
	}
	if err := tx.Commit(); err != nil { // LoadState may have made the row
		return nil, fmt.Errorf("load the state of retention: %w", err)
	}
	was, err := json.Marshal(state.Rules)
	is, err2 := json.Marshal(rules)
	if err := errors.Join(err, err2); err != nil {
		return nil, err
	}
	if string(was) != string(is) || len(state.Passed) != len(rules) {
		state = retentionState{Rules: rules, Passed: make([]int64, len(rules)), Last: state.Last}
	}
	return &state, nil
}

func (o *Ops) storeRetention(ctx context.Context, state *retentionState) error {
	tx, err := o.db.BeginTx(ctx, o.readCommitted())
	if err != nil {
		return fmt.Errorf("store the state of retention: %w", err)
	}
	defer tx.Rollback() // after a commit it does nothing
	if err := o.StoreState(ctx, tx, retentionName, state); err != nil {
		return err
	}
	return tx.Commit()
}
