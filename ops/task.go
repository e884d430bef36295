package ops

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"
	"unicode/utf8"
)

// Task is something that one process at a time does on a schedule, however many run: a row of outbox_task holds the lease.
type Task struct {
	// Name is the same in all processes. It is the row's key.
	Name string
	// Every is the time from the end of one run to the beginning of the next, by the database's clock. The first run is at once.
	Every time.Duration
	// Run does it once. Its context ends when the process stops or has lost the lease; whoever has the lease then may run at the
	// same time for a moment, so what must not happen twice goes into a transaction with LoadState, which keeps the other out.
	Run func(ctx context.Context) error
}

// TaskStatus is where a task stands.
type TaskStatus struct {
	Name string `json:"name"`
	// Owner is the process that runs it now; "": nobody does.
	Owner      string     `json:"owner,omitempty"`
	DueAt      time.Time  `json:"due_at"`
	StartedAt  *time.Time `json:"started_at,omitempty"`
	FinishedAt *time.Time `json:"finished_at,omitempty"`
	// LastError is that of the last run; "": it went well.
	LastError string `json:"last_error,omitempty"`
	// State is what the next run goes on from, or the last one's report.
	State json.RawMessage `json:"state,omitempty"`
}

const (
	taskLease   = 15 * time.Second
	taskPoll    = 5 * time.Second // how often a task is looked at that is not due or that another process runs
	taskMinPoll = 50 * time.Millisecond
	taskMaxFail = time.Minute     // between looks at a database that fails
	taskFinish  = 5 * time.Second // for writing down how a run went when the process stops
	// MaxTaskError is how much of an error is kept, in bytes.
	MaxTaskError = 2000
)

var errTaskLost = errors.New("the lease of the task is lost: another process runs it now")

type taskQueries struct{ add, claim, wait, renew, finish, free, state, store, list string }

func (q *taskQueries) files() map[string]*string {
	return map[string]*string{
		"task_add": &q.add, "task_claim": &q.claim, "task_wait": &q.wait, "task_renew": &q.renew, "task_finish": &q.finish,
		"task_free": &q.free, "task_state": &q.state, "task_store": &q.store, "tasks": &q.list,
	}
}

// RunTasks runs tasks when they are due, until the context ends, side by side and each in one process at a time. owner tells
// processes apart. Errors of a run are kept in outbox_task and logged when they are new; the task is due again after its interval.
func (o *Ops) RunTasks(ctx context.Context, owner string, tasks []Task, log *slog.Logger) {
	var running sync.WaitGroup
	for _, task := range tasks {
		running.Go(func() { (&taskLoop{Ops: o, Task: task, owner: owner, log: log}).run(ctx) })
	}
	running.Wait()
}

// taskLoop runs one task.
type taskLoop struct {
	*Ops
	Task
	owner string
	log   *slog.Logger
	told  string // the error that was logged last; "": all is well
	fails int    // looks in a row that failed
}

func (l *taskLoop) run(ctx context.Context) {
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-time.After(l.turn(ctx)):
		}
	}
}

// turn runs the task if it is due and free. It returns when to look again.
func (l *taskLoop) turn(ctx context.Context) time.Duration {
	epoch, wait, err := l.claim(ctx)
	switch {
	case ctx.Err() != nil:
		return 0
	case err != nil:
		l.tell(err)
		l.fails++
		return min(taskMaxFail, time.Second<<min(l.fails-1, 10))
	case epoch == 0:
		l.fails = 0
		return min(max(wait, taskMinPoll), taskPoll)
	}
	l.fails = 0
	l.tell(l.hold(ctx, epoch))
	return taskMinPoll
}

// claim takes the lease. epoch 0: it is not due, or another process has it, for so long yet.
func (l *taskLoop) claim(ctx context.Context) (epoch int64, wait time.Duration, err error) {
	failed := func(err error) (int64, time.Duration, error) {
		return 0, 0, fmt.Errorf("take the lease of task %s: %w%s", l.Name, err, rightsHint(err))
	}
	every := l.Every.Microseconds()
	for try := 0; ; try++ {
		err = l.db.QueryRowContext(ctx, l.queries.task.claim, l.Name, l.owner, taskLease.Microseconds(), every).Scan(&epoch)
		if err == nil {
			return epoch, 0, nil
		}
		if !errors.Is(err, sql.ErrNoRows) {
			return failed(err)
		}
		var micros int64
		err = l.db.QueryRowContext(ctx, l.queries.task.wait, l.Name, every).Scan(&micros)
		if err == nil {
			return 0, time.Duration(micros) * time.Microsecond, nil
		}
		if !errors.Is(err, sql.ErrNoRows) || try > 0 {
			return failed(err)
		}
		if _, err := l.db.ExecContext(ctx, l.queries.task.add, l.Name); err != nil {
			return failed(err)
		}
	}
}

// hold runs the task while it renews the lease, and writes down how it went.
func (l *taskLoop) hold(ctx context.Context, epoch int64) error {
	run, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var renewing sync.WaitGroup
	renewing.Go(func() { l.renew(run, epoch, cancel) })
	err := l.Run(run)
	lost := errors.Is(context.Cause(run), errTaskLost)
	cancel(nil)
	renewing.Wait()
	if lost {
		return errTaskLost
	}
	end, stop := context.WithTimeout(context.WithoutCancel(ctx), taskFinish)
	defer stop()
	if ctx.Err() != nil && err != nil {
		_, free := l.db.ExecContext(end, l.queries.task.free, l.Name, l.owner, epoch)
		return free
	}
	var text sql.NullString
	if err != nil {
		text = sql.NullString{String: shortened(err.Error(), MaxTaskError), Valid: true}
	}
	if _, e := l.db.ExecContext(end, l.queries.task.finish, l.Name, l.owner, epoch, l.Every.Microseconds(), text); e != nil {
		return errors.Join(err, fmt.Errorf("write down how task %s went: %w", l.Name, e))
	}
	return err
}

// renew prolongs the lease until the run ends. It ends the run when the lease is lost, or may be: two thirds of it have passed
// since the last renewal that went well was sent.
func (l *taskLoop) renew(ctx context.Context, epoch int64, cancel context.CancelCauseFunc) {
	tick := time.NewTicker(taskLease / 3)
	defer tick.Stop()
	good := time.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		sent := time.Now()
		try, stop := context.WithTimeout(ctx, taskLease/3)
		result, err := l.db.ExecContext(try, l.queries.task.renew, l.Name, l.owner, epoch, taskLease.Microseconds())
		stop()
		rows := int64(1)
		if err == nil {
			good = sent
			rows, err = result.RowsAffected()
		}
		if err == nil && rows == 0 || time.Since(good) > taskLease*2/3 {
			cancel(errTaskLost)
			return
		}
	}
}

// tell logs an error when it is new, and that all is well again.
func (l *taskLoop) tell(err error) {
	text := ""
	if err != nil {
		text = err.Error()
	}
	switch {
	case text == l.told:
	case err != nil:
		l.log.Warn("a task has failed", "task", l.Name, "error", err)
	default:
		l.log.Info("a task is well again", "task", l.Name)
	}
	l.told = text
}

// rightsHint says what helps when the role of the connection may not do something; "" for other errors.
func rightsHint(err error) string {
	if !lacksRights(err) {
		return ""
	}
	return ": the database role of this process lacks the operator's rights: apply what `pillarbox migrate --print-roles` prints"
}

// lacksRights tells PostgreSQL's insufficient_privilege.
func lacksRights(err error) bool {
	var state interface{ SQLState() string }
	return errors.As(err, &state) && state.SQLState() == "42501"
}

// shortened cuts a text to at most n bytes, between characters.
func shortened(text string, n int) string {
	text = strings.ToValidUTF8(text, "\uFFFD")
	if len(text) <= n {
		return text
	}
	for n > 0 && !utf8.RuneStart(text[n]) {
		n--
	}
	return text[:n]
}

// LoadState reads the state of a task into a variable as JSON; it stays as it is when there is none yet. The task's row is locked
// until the end of the transaction, so whoever loads it next sees what this one stores, and a run that has lost its lease
// cannot do its work beside the new owner's.
func (o *Ops) LoadState(ctx context.Context, tx *sql.Tx, task string, into any) error {
	_, err := o.readState(ctx, tx, task, into)
	if errors.Is(err, sql.ErrNoRows) {
		if _, err := tx.ExecContext(ctx, o.queries.task.add, task); err != nil {
			return loadFailed(task, err)
		}
		_, err = o.readState(ctx, tx, task, into)
	}
	return err
}

// readState is LoadState for a task that has a row; sql.ErrNoRows: it has none. It tells whether there is a state.
func (o *Ops) readState(ctx context.Context, tx *sql.Tx, task string, into any) (has bool, err error) {
	var text string
	err = tx.QueryRowContext(ctx, o.queries.task.state, task).Scan(&text)
	if err == nil && text != "" {
		has, err = true, json.Unmarshal([]byte(text), into)
	}
	if err != nil {
		return false, loadFailed(task, err)
	}
	return has, nil
}

func loadFailed(task string, err error) error {
	return fmt.Errorf("load the state of task %s: %w%s", task, err, rightsHint(err))
}

// StoreState writes the state of a task, as JSON. LoadState comes before it in the transaction.
func (o *Ops) StoreState(ctx context.Context, tx *sql.Tx, task string, state any) error {
	text, err := json.Marshal(state)
	if err == nil {
		_, err = tx.ExecContext(ctx, o.queries.task.store, task, string(text))
	}
	if err != nil {
		return fmt.Errorf("store the state of task %s: %w", task, err)
	}
	return nil
}

// Tasks returns all tasks that have run or are about to, by name.
func (o *Ops) Tasks(ctx context.Context) ([]TaskStatus, error) {
	tasks := []TaskStatus{}
	rows, err := o.db.QueryContext(ctx, o.queries.task.list)
	if err != nil {
		return nil, fmt.Errorf("list the tasks: %w", err)
	}
	defer rows.Close()
	for rows.Next() {
		var t TaskStatus
		var due, started, finished sql.NullInt64
		var state string
		if err := rows.Scan(&t.Name, &t.Owner, &due, &started, &finished, &t.LastError, &state); err != nil {
			return nil, fmt.Errorf("list the tasks: %w", err)
		}
		t.DueAt, t.StartedAt, t.FinishedAt = *moment(due), moment(started), moment(finished)
		if state != "" {
			t.State = json.RawMessage(state)
		}
		tasks = append(tasks, t)
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("list the tasks: %w", err)
	}
	return tasks, nil
}
