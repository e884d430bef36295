package ops

import (
	"context"
	"errors"
)

// What is agreed on and not built yet. Each goes from here to the file of its subject when it is.
var errUnbuilt = errors.New("not built yet")

// ---- job.go, jobrun.go

func (o *Ops) Estimate(ctx context.Context, r JobRequest) (Count, error) { return Count{}, errUnbuilt }
func (o *Ops) StartJob(ctx context.Context, r JobRequest, a Action) (Job, error) {
	return Job{}, errUnbuilt
}
func (o *Ops) Job(ctx context.Context, id int64) (Job, error)    { return Job{}, errUnbuilt }
func (o *Ops) Jobs(ctx context.Context, p Page) (JobPage, error) { return JobPage{}, errUnbuilt }

// version is the Job.Version that the operator saw.
func (o *Ops) PauseJob(ctx context.Context, id, version int64, a Action) (Job, error) {
	return Job{}, errUnbuilt
}
func (o *Ops) ResumeJob(ctx context.Context, id, version int64, a Action) (Job, error) {
	return Job{}, errUnbuilt
}
func (o *Ops) CancelJob(ctx context.Context, id, version int64, a Action) (Job, error) {
	return Job{}, errUnbuilt
}
