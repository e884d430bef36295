package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/pillarbox-dev/pillarbox/internal/config"
	"github.com/pillarbox-dev/pillarbox/ops"
)

const jobsHelp = `A job retries, discards or replays many deliveries of one destination, in the order of the log, so that each key stays in order,
and no faster than its rate. A running 'pillarbox run' does the work, whichever has time for it; a job goes on where it was
after a restart. Each delivery that it touches is recorded, with who started the job and why.`

// jobFlags are what a command says about a job.
type jobFlags struct {
	request      ops.JobRequest
	dryRun, wait bool
	action       ops.Action
}

func (f *jobFlags) add(cmd *cobra.Command) {
	flags := cmd.Flags()
	filterFlags(flags, &f.request.Filter, time.Now)
	flags.IntVar(&f.request.RatePerSecond, "rate", ops.DefaultJobRate,
		fmt.Sprintf("deliveries a second at most, up to %d", ops.MaxJobRate))
	flags.Int64Var(&f.request.MaxEvents, "max-events", 0, "end after so many; 0: no limit")
	flags.BoolVar(&f.dryRun, "dry-run", false, "say how many deliveries it would be, and change nothing")
	flags.BoolVar(&f.wait, "wait", false, "wait until it is done, and show how far it is")
	actionFlags(cmd, &f.action)
}

func newReplay(a *app) *cobra.Command {
	f := &jobFlags{request: ops.JobRequest{Kind: ops.JobReplay}}
	cmd := &cobra.Command{
		Use:   "replay DESTINATION --reason TEXT",
		Short: "Deliver again what a destination has been sent",
		Long: `replay starts a job that delivers again to one destination what was PUBLISHED, DISCARDED or QUARANTINED, and what it has no
row for: since it keeps no ledger, or began later. What is under way, has failed and will be tried again, or was not reached
yet is left alone: it is delivered anyway. The receiver gets the same event ids as before, so one with an inbox will take
them for what they are, duplicates.

` + jobsHelp,
		Example: `  pillarbox replay suppliers --since 2h --topic 'orders.*' --dry-run
  pillarbox replay suppliers --since 2h --rate 200 --reason "they lost a disk" --wait
  pillarbox replay suppliers --status QUARANTINED --code HTTP_422 --reason "their fix is out"`,
		Args: oneArg("the name of a destination"),
		RunE: func(cmd *cobra.Command, args []string) error { return a.startJob(cmd, f, args[0]) },
	}
	f.add(cmd)
	return cmd
}

func newJobs(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "jobs",
		Short: "Retry, discard or replay in bulk",
		Long:  jobsHelp,
		Example: `  pillarbox jobs start suppliers --kind retry --status QUARANTINED --reason "they are back"
  pillarbox jobs list
  pillarbox jobs pause 7 --reason "too much for them"`,
		Args: noCommand,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newJobsStart(a), newJobsList(a), newJobsShow(a),
		newJobsSteer(a, "pause", "Let a running job rest", (*ops.Ops).PauseJob),
		newJobsSteer(a, "resume", "Let a job go on that was paused or has failed", (*ops.Ops).ResumeJob),
		newJobsSteer(a, "cancel", "End a job; what it has done stays", (*ops.Ops).CancelJob))
	return cmd
}

func newJobsStart(a *app) *cobra.Command {
	f := &jobFlags{}
	cmd := &cobra.Command{
		Use:   "start DESTINATION --kind KIND --reason TEXT",
		Short: "Start a job",
		Long: `start starts a job of one of three kinds: retry sets what has FAILED or is QUARANTINED going again, discard gives it up, replay
is what 'pillarbox replay' does.

` + jobsHelp,
		Example: `  pillarbox jobs start suppliers --kind retry --status QUARANTINED --code HTTP_503 --reason "they are back" --wait
  pillarbox jobs start suppliers --kind discard --topic 'test.*' --dry-run`,
		Args: oneArg("the name of a destination"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if f.request.Kind == "" {
				return usageError{errors.New("--kind is missing: it can be retry, discard or replay")}
			}
			return a.startJob(cmd, f, args[0])
		},
	}
	cmd.Flags().StringVar((*string)(&f.request.Kind), "kind", "", "retry, discard or replay")
	f.add(cmd)
	return cmd
}

func (a *app) startJob(cmd *cobra.Command, f *jobFlags, destination string) error {
	r := f.request
	r.Filter.Destination = destination
	return a.withOps(cmd, func(_ *config.Config, o *ops.Ops) error {
		if f.dryRun {
			n, err := o.Estimate(cmd.Context(), r)
			if err == nil {
				a.printf("%s\n", estimateText(r.Kind, n))
			}
			return err
		}
		j, err := o.StartJob(cmd.Context(), r, f.action)
		if err != nil {
			return err
		}
		a.printf("job %d has started: %s to %s, from number %s to %s, %s a second at most\n", j.ID, j.Kind, destination,
			grouped(j.FromSeq), grouped(j.ToSeq), grouped(int64(j.RatePerSecond)))
		if f.wait {
			return a.waitFor(cmd.Context(), o, j)
		}
		a.printf("a running 'pillarbox run' does the work; 'pillarbox jobs show %d' tells how far it is\n", j.ID)
		return nil
	})
}

func estimateText(kind ops.JobKind, n ops.Count) string {
	does := "set going again"
	if kind == ops.JobDiscard {
		does = "given up"
	}
	return fmt.Sprintf("%s deliveries would be %s", countText(n), does)
}

const (
	waitPoll = 500 * time.Millisecond
	waitHint = 10 * time.Second // without progress
)

// waitFor shows how far a job is until it is at an end. When the command is stopped, the job goes on.
func (a *app) waitFor(ctx context.Context, o *ops.Ops, j ops.Job) error {
	moved, hinted, position := time.Now(), false, int64(-1)
	for j.State == ops.JobRunning {
		if j.Position != position {
			position, moved, hinted = j.Position, time.Now(), false
			_, _ = fmt.Fprintf(a.errOut, "%s\n", progressText(j))
		}
		if !hinted && time.Since(moved) > waitHint {
			hinted = true
			_, _ = fmt.Fprintf(a.errOut, "%s\n", stuckText(j))
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the job goes on without being watched: 'pillarbox jobs show %d' tells how far it is", j.ID)
		case <-time.After(waitPoll):
		}
		var err error
		if j, err = o.Job(ctx, j.ID); err != nil {
			return err
		}
	}
	a.printf("%s\n", progressText(j))
	if j.State != ops.JobDone {
		if j.LastError != "" {
			_, _ = fmt.Fprintf(a.errOut, "%s\n", j.LastError)
		}
		return errFound
	}
	return nil
}

func stuckText(j ops.Job) string {
	if j.LastError != "" {
		return j.LastError
	}
	return "nobody works on it: see that a 'pillarbox run' runs, and that its log has no word of jobs"
}

func progressText(j ops.Job) string {
	return fmt.Sprintf("job %d is %s: %s, %s affected, %s skipped", j.ID, j.State, doneText(j), grouped(j.Affected), grouped(j.Skipped))
}

// doneText is the part of its stretch that a job has gone through.
func doneText(j ops.Job) string {
	whole := j.ToSeq - j.FromSeq + 1
	if whole <= 0 {
		return "100%"
	}
	return strconv.FormatInt((j.Position-j.FromSeq+1)*100/whole, 10) + "%"
}

func newJobsList(a *app) *cobra.Command {
	var asJSON bool
	var page ops.Page
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the jobs, the newest first",
		Example: `  pillarbox jobs list
  pillarbox jobs list --json | jq '.jobs[] | select(.state == "RUNNING")'`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.withOps(cmd, func(_ *config.Config, o *ops.Ops) error {
				found, err := o.Jobs(cmd.Context(), page)
				if err != nil {
					return err
				}
				if asJSON {
					return a.printJSON(found)
				}
				a.printf("%s", jobsText(found, time.Now()))
				return nil
			})
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	cmd.Flags().IntVar(&page.Limit, "limit", 0, fmt.Sprintf("how many, at most %d; 0: 50", ops.MaxPage))
	cmd.Flags().StringVar(&page.After, "after", "", "go on with this `PLACE`, which the last list has named")
	cmd.Flags().BoolVar(&page.OldestFirst, "oldest-first", false, "the oldest first")
	return cmd
}

func jobsText(page ops.JobPage, now time.Time) string {
	if len(page.Jobs) == 0 {
		return "there are no jobs\n"
	}
	t := table{right: []bool{true, false, false, false, true, true, true, true, true}}
	t.add("ID", "KIND", "DESTINATION", "STATE", "DONE", "AFFECTED", "SKIPPED", "RATE", "AGE", "BY", "REASON")
	for _, j := range page.Jobs {
		t.add(strconv.FormatInt(j.ID, 10), string(j.Kind), j.Filter.Destination, string(j.State), doneText(j), grouped(j.Affected),
			grouped(j.Skipped), grouped(int64(j.RatePerSecond))+"/s", ageText(now.Sub(j.CreatedAt)), orDash(j.CreatedBy), orDash(j.Reason))
	}
	if page.Next == "" {
		return t.String()
	}
	return t.String() + "\nthere are more: --after " + page.Next + "\n"
}

func newJobsShow(a *app) *cobra.Command {
	var asJSON, wait bool
	cmd := &cobra.Command{
		Use:   "show ID",
		Short: "Show a job and how far it is",
		Example: `  pillarbox jobs show 7
  pillarbox jobs show 7 --wait`,
		Args: oneArg("the number of a job"),
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := jobID(args[0])
			if err != nil {
				return err
			}
			return a.withOps(cmd, func(_ *config.Config, o *ops.Ops) error {
				j, err := o.Job(cmd.Context(), id)
				switch {
				case err != nil:
					return err
				case wait:
					return a.waitFor(cmd.Context(), o, j)
				case asJSON:
					return a.printJSON(j)
				}
				a.printf("%s", jobText(j))
				return nil
			})
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	cmd.Flags().BoolVar(&wait, "wait", false, "wait until it is done, and show how far it is")
	return cmd
}

func jobID(text string) (int64, error) {
	id, err := strconv.ParseInt(text, 10, 64)
	if err != nil || id < 1 {
		return 0, usageError{fmt.Errorf("%q is no number of a job: 'pillarbox jobs list' shows them", text)}
	}
	return id, nil
}

func jobText(j ops.Job) string {
	t := table{}
	add := func(name, value string) {
		if value != "" {
			t.add(name, value)
		}
	}
	filter, _ := json.Marshal(j.Filter) // of plain texts and numbers it cannot fail
	limit := ""
	if j.MaxEvents > 0 {
		limit = grouped(j.MaxEvents) + " deliveries"
	}
	add("job", fmt.Sprintf("%d, version %d", j.ID, j.Version))
	add("kind", string(j.Kind))
	add("filter", string(filter))
	add("state", string(j.State))
	add("done", fmt.Sprintf("%s, at number %s of %s to %s", doneText(j), grouped(j.Position), grouped(j.FromSeq), grouped(j.ToSeq)))
	add("affected", grouped(j.Affected))
	add("skipped", grouped(j.Skipped))
	add("rate", grouped(int64(j.RatePerSecond))+"/s at most")
	add("limit", limit)
	add("started", j.CreatedAt.Format(time.RFC3339)+" by "+plain(j.CreatedBy))
	add("reason", plain(j.Reason))
	if j.FinishedAt != nil {
		add("ended", j.FinishedAt.Format(time.RFC3339))
	}
	add("trouble", plain(j.LastError))
	return t.String()
}

func newJobsSteer(a *app, verb, short string,
	do func(o *ops.Ops, ctx context.Context, id, version int64, a ops.Action) (ops.Job, error)) *cobra.Command {
	var action ops.Action
	var version int64
	cmd := &cobra.Command{
		Use:   verb + " ID",
		Short: short,
		Long: short + `. Who did it and why is recorded. With --if-version it is refused once the job is
no longer what 'pillarbox jobs show' has shown.`,
		Example: "  pillarbox jobs " + verb + ` 7 --reason "their release"`,
		Args:    oneArg("the number of a job"),
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := jobID(args[0])
			if err != nil {
				return err
			}
			return a.withOps(cmd, func(_ *config.Config, o *ops.Ops) error {
				if version == 0 {
					seen, err := o.Job(cmd.Context(), id)
					if err != nil {
						return err
					}
					version = seen.Version
				}
				j, err := do(o, cmd.Context(), id, version, action)
				if err == nil {
					a.printf("%s\n", progressText(j))
				}
				return err
			})
		},
	}
	cmd.Flags().Int64Var(&version, "if-version", 0, "only if this is still the job's version; 0: as it is now")
	actionFlags(cmd, &action)
	return cmd
}
