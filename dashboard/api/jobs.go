package api

import (
	"context"
	"fmt"
	"strconv"

	"github.com/pillarbox-dev/pillarbox/ops"
	"github.com/pillarbox-dev/pillarbox/relay"
)

func (a *api) listJobs(c *call) (any, error) {
	q := c.query()
	page := q.page()
	if err := q.done(); err != nil {
		return nil, err
	}
	return a.Ops.Jobs(c.Context(), page)
}

func (a *api) showJob(c *call) (any, error) {
	id, err := c.jobID()
	if err != nil {
		return nil, err
	}
	return a.Ops.Job(c.Context(), id)
}

func (c *call) jobID() (int64, error) {
	if err := c.query().done(); err != nil {
		return 0, err
	}
	id, err := strconv.ParseInt(c.PathValue("id"), 10, 64)
	if err != nil || id < 1 {
		return 0, ops.ErrNotFound
	}
	return id, nil
}

// estimate is the answer to a dry run.
type estimate struct {
	DryRun   bool      `json:"dry_run"`
	Estimate ops.Count `json:"estimate"`
}

// startJob starts a job, or tells with dry_run how much it would touch.
func (a *api) startJob(c *call) (any, error) {
	body, err := c.body(maxBody)
	if err != nil {
		return nil, err
	}
	request := ops.JobRequest{
		Kind: ops.JobKind(body.text("kind")), RatePerSecond: int(body.number("rate_per_second", 1)),
		MaxEvents: body.number("max_events", 0),
	}
	request.Filter = readFilter(body.object("filter"))
	dry := body.flag("dry_run")
	reason := body.reason(!dry)
	if err := body.done(); err != nil {
		return nil, err
	}
	if dry {
		count, err := a.Ops.Estimate(c.Context(), request)
		return estimate{true, count}, err
	}
	job, err := a.Ops.StartJob(c.Context(), request, ops.Action{By: c.who.Name, Reason: reason})
	return created{fmt.Sprintf("/jobs/%d", job.ID), job}, err
}

func readFilter(f *fields) ops.Filter {
	filter := ops.Filter{
		Destination: f.text("destination"), Topics: relay.Topics(f.texts("topics")), Key: f.text("partition_key"),
		AggregateType: f.text("aggregate_type"), AggregateID: f.text("aggregate_id"), EventType: f.text("event_type"),
		ErrorCode: f.text("last_error_code"), Endpoint: f.text("endpoint"),
		Since: f.moment("since"), Until: f.moment("until"), FromSeq: f.number("from_seq", 1), ToSeq: f.number("to_seq", 1),
	}
	for _, status := range f.texts("statuses") {
		filter.Statuses = append(filter.Statuses, relay.Status(status))
	}
	f.close()
	return filter
}

// changeJob pauses, resumes or cancels a job, and answers with what it is then.
func (a *api) changeJob(
	do func(ctx context.Context, id, version int64, action ops.Action) (ops.Job, error),
) func(*call) (any, error) {
	return func(c *call) (any, error) {
		id, err := c.jobID()
		if err != nil {
			return nil, err
		}
		body, err := c.body(maxBody)
		if err != nil {
			return nil, err
		}
		var version int64
		body.version(&version, "the version of the job, a number")
		action := ops.Action{By: c.who.Name, Reason: body.reason(false)}
		if err := body.done(); err != nil {
			return nil, err
		}
		return do(c.Context(), id, version, action)
	}
}
