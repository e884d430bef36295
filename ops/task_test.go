package ops_test

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pillarbox-dev/pillarbox/ops"
	"github.com/pillarbox-dev/pillarbox/outbox/schema"
)

// Several processes, one task: no two runs at once, and every run goes on from the state of the one before.
func TestTaskRunsInOneProcessAtATime(t *testing.T) {
	onBoth(t, func(b *box) {
		const runs = 10
		ctx, stop := context.WithCancel(b.Context())
		defer stop()
		var at, done atomic.Int32
		task := ops.Task{Name: "count", Every: time.Millisecond, Run: func(ctx context.Context) error {
			if at.Add(1) != 1 {
				t.Error("two runs at once")
			}
			defer at.Add(-1)
			if err := count(ctx, b, "count"); err != nil {
				return err
			}
			if done.Add(1) == runs {
				stop()
			}
			return nil
		}}
		var running sync.WaitGroup
		for i := range 5 {
			running.Go(func() { b.RunTasks(ctx, fmt.Sprint("process ", i), []ops.Task{task}, slog.New(slog.DiscardHandler)) })
		}
		running.Wait()
		tasks, err := b.Tasks(b.Context())
		b.must(err)
		if len(tasks) != 1 || tasks[0].Name != "count" || tasks[0].Owner != "" || tasks[0].FinishedAt == nil ||
			tasks[0].LastError != "" || string(tasks[0].State) != fmt.Sprintf(`{"n":%d}`, done.Load()) {
			t.Errorf("tasks = %+v, want one that was run %d times and that nobody has", tasks, done.Load())
		}
	})
}

type counted struct {
	N int `json:"n"`
}

// count adds one to the state of a task.
func count(ctx context.Context, b *box, task string) error {
	tx, err := b.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	var state counted
	if err := b.LoadState(ctx, tx, task, &state); err != nil {
		return err
	}
	state.N++
	if err := b.StoreState(ctx, tx, task, state); err != nil {
		return err
	}
	return tx.Commit()
}

// An error of a run is kept and logged once, and the task is due again.
func TestTaskKeepsItsError(t *testing.T) {
	onBoth(t, func(b *box) {
		ctx, stop := context.WithCancel(b.Context())
		defer stop()
		var log bytes.Buffer
		runs := 0
		b.RunTasks(ctx, "p", []ops.Task{{Name: "broken", Every: time.Millisecond, Run: func(context.Context) error {
			if runs++; runs == 4 {
				stop()
			}
			return errors.New("the disk is full" + strings.Repeat("é", ops.MaxTaskError))
		}}}, slog.New(slog.NewTextHandler(&log, nil)))
		tasks, err := b.Tasks(b.Context())
		b.must(err)
		if len(tasks) != 1 || !strings.HasPrefix(tasks[0].LastError, "the disk is full") || len(tasks[0].LastError) > ops.MaxTaskError {
			t.Errorf("tasks = %+v, want the error, shortened", tasks)
		}
		if got := strings.Count(log.String(), "a task has failed"); got != 1 {
			t.Errorf("logged %d times, want once:\n%s", got, log.String())
		}
	})
}

// A process that stops leaves the task to others at once.
func TestTaskIsLeftToOthersAtTheEnd(t *testing.T) {
	onBoth(t, func(b *box) {
		began := make(chan string, 2)
		task := ops.Task{Name: "long", Every: time.Hour, Run: func(ctx context.Context) error {
			began <- "a run"
			<-ctx.Done()
			return ctx.Err()
		}}
		for range 2 {
			ctx, stop := context.WithCancel(b.Context())
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				b.RunTasks(ctx, "p", []ops.Task{task}, slog.New(slog.DiscardHandler))
			}()
			<-began
			stop()
			<-ended
		}
	})
}

// A lease that is another's ends the run, and what the run wanted to write down is not.
func TestTaskLosesItsLease(t *testing.T) {
	onBoth(t, func(b *box) {
		ctx, stop := context.WithCancel(b.Context())
		defer stop()
		ended := make(chan error, 1)
		b.RunTasks(ctx, "p", []ops.Task{{Name: "stolen", Every: time.Hour, Run: func(ctx context.Context) error {
			b.exec("update outbox_task set owner = 'other', lease_epoch = lease_epoch + 1 where name = 'stolen'")
			<-ctx.Done()
			ended <- context.Cause(ctx)
			stop()
			return nil
		}}}, slog.New(slog.DiscardHandler))
		if err := <-ended; err == nil || !strings.Contains(err.Error(), "another process") {
			t.Errorf("the run ended with %v, want that another process has it", err)
		}
		tasks, err := b.Tasks(b.Context())
		b.must(err)
		if tasks[0].Owner != "other" || tasks[0].FinishedAt != nil {
			t.Errorf("task = %+v, want the other's, not finished", tasks[0])
		}
	})
}

// A lease that has expired is taken over; one that has not is left alone.
func TestTaskTakesOverAnExpiredLease(t *testing.T) {
	onBoth(t, func(b *box) {
		b.exec("insert into outbox_task (name, owner, lease_epoch) values ('t', 'dead', 7)")
		b.exec("update outbox_task set lease_until = " + map[schema.Dialect]string{
			schema.Postgres: "clock_timestamp() - interval '1 second'", schema.SQLite: "1"}[b.dialect])
		ctx, stop := context.WithCancel(b.Context())
		defer stop()
		b.RunTasks(ctx, "p", []ops.Task{{Name: "t", Every: time.Hour, Run: func(context.Context) error { stop(); return nil }}},
			slog.New(slog.DiscardHandler))
		var epoch int
		var owner sql.NullString
		b.must(b.db.QueryRowContext(b.Context(), "select lease_epoch, owner from outbox_task").Scan(&epoch, &owner))
		if epoch != 8 || owner.Valid {
			t.Errorf("epoch, owner = %d, %v, want 8 and nobody", epoch, owner)
		}
	})
}

func TestTasksOfAnEmptyOutbox(t *testing.T) {
	onBoth(t, func(b *box) {
		tasks, err := b.Tasks(b.Context())
		b.must(err)
		if text, _ := json.Marshal(tasks); string(text) != "[]" {
			t.Errorf("tasks = %s, want an empty list", text)
		}
	})
}
