package dashboard

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/pillarbox-dev/pillarbox/ops"
	"github.com/pillarbox-dev/pillarbox/relay"
)

// jobList is a part of the list of jobs.
type jobList struct {
	Jobs  []jobRow
	Pages pages
}

// jobRow is a job with how far it has come.
type jobRow struct{ ops.Job }

// Title names the page.
func (j jobRow) Title() string { return fmt.Sprintf("Job %d", j.ID) }

// Done is how much of its stretch of the log a job has gone through, of Whole.
func (j jobRow) Done() int64 {
	if j.State == ops.JobDone {
		return j.Whole()
	}
	return min(max(j.Position-j.FromSeq+1, 0), j.Whole())
}

// Whole is the length of the stretch.
func (j jobRow) Whole() int64 { return max(j.ToSeq-j.FromSeq+1, 1) }

// Part is the same as a part of 1.
func (j jobRow) Part() float64 { return float64(j.Done()) / float64(j.Whole()) }

// CanPause, CanResume and CanCancel say which forms make sense.
func (j jobRow) CanPause() bool { return j.State == ops.JobRunning }

// CanResume tells whether it can go on.
func (j jobRow) CanResume() bool { return j.State == ops.JobPaused || j.State == ops.JobFailed }

// CanCancel tells whether it has not ended for good.
func (j jobRow) CanCancel() bool { return j.CanPause() || j.CanResume() }

// What says in words which deliveries it is about.
func (j jobRow) What() []header {
	var all []header
	v := filterValues(j.Filter)
	for _, name := range []struct{ key, text string }{
		{"topics", "Topics"}, {"statuses", "Status"}, {"partition_key", "Partition key"}, {"event_type", "Event type"},
		{"aggregate_type", "Aggregate type"}, {"aggregate_id", "Aggregate id"}, {"last_error_code", "Error code"},
		{"endpoint", "Endpoint"}, {"since", "Created since"}, {"until", "Created before"}, {"from_seq", "From number"},
		{"to_seq", "To number"},
	} {
		if values := v[name.key]; len(values) > 0 {
			all = append(all, header{name.text, strings.Join(values, ", ")})
		}
	}
	return all
}

func (d *Dashboard) jobs(r *http.Request) (any, error) {
	query := r.URL.Query()
	found, err := d.config.Ops.Jobs(r.Context(), ops.Page{Limit: pageSize, After: query.Get("after")})
	if err != nil {
		return nil, err
	}
	l := jobList{Pages: pagesOf("/jobs", query, found.Next)}
	for _, j := range found.Jobs {
		l.Jobs = append(l.Jobs, jobRow{j})
	}
	return l, nil
}

func (d *Dashboard) job(r *http.Request) (any, error) {
	id, err := strconv.ParseInt(r.PathValue("id"), 10, 64)
	if err != nil {
		return nil, ops.ErrNotFound
	}
	j, err := d.config.Ops.Job(r.Context(), id)
	if err != nil {
		return nil, err
	}
	return jobRow{j}, nil
}

// newJob is what the form for a job shows.
type newJob struct {
	Form         filterForm
	Kind         ops.JobKind
	Rate, Max    string
	Reason       string
	Count        *ops.Count // of a dry run
	CountProblem string
}

// Kinds are what a job can do, in words.
func (newJob) Kinds() []header {
	return []header{
		{string(ops.JobRetry), "Retry: set failed and quarantined deliveries going again"},
		{string(ops.JobReplay), "Replay: deliver again what was settled"},
		{string(ops.JobDiscard), "Discard: give failed and quarantined deliveries up"},
	}
}

func (d *Dashboard) newJob(r *http.Request) (any, error) {
	form, request, problems, err := d.jobForm(r, r.URL.Query())
	if err != nil || r.URL.Query().Get("count") == "" {
		return form, err
	}
	form.Form.tell(problems)
	if len(problems) > 0 {
		return form, nil
	}
	count, err := d.config.Ops.Estimate(r.Context(), request)
	if err != nil {
		_, n := d.refusal(err)
		if n == nil {
			return nil, err
		}
		form.CountProblem = n.Text
		return form, nil
	}
	form.Count = &count
	return form, nil
}

// jobForm reads the form, out of an address (for a count) or a body (to start).
func (d *Dashboard) jobForm(r *http.Request, v url.Values) (form newJob, request ops.JobRequest, problems []string, err error) {
	names, err := d.names(r.Context())
	if err != nil {
		return form, request, nil, err
	}
	f, problems := parseFilter(v)
	request = ops.JobRequest{Kind: ops.JobKind(v.Get("kind")), Filter: f}
	if request.Kind == "" {
		request.Kind = ops.JobRetry
	}
	number := func(label, name string) int64 {
		text := strings.TrimSpace(v.Get(name))
		if text == "" {
			return 0
		}
		n, err := strconv.ParseInt(text, 10, 32)
		if err != nil || n < 1 {
			problems = append(problems, fmt.Sprintf("%s: %q is no number above 0.", label, text))
		}
		return n
	}
	request.RatePerSecond = int(number("At most per second", "rate_per_second"))
	request.MaxEvents = number("At most in all", "max_events")
	form = newJob{
		Form: newFilterForm(f, v, nil, names), Kind: request.Kind,
		Rate: v.Get("rate_per_second"), Max: v.Get("max_events"), Reason: v.Get("reason"),
	}
	if f.Destination == "" && len(names) == 1 {
		form.Form.Destination = names[0]
	}
	return form, request, problems, nil
}

// JobStatuses are those that a job can be about.
func (newJob) JobStatuses() []relay.Status {
	return []relay.Status{relay.StatusFailed, relay.StatusQuarantined, relay.StatusPublished, relay.StatusDiscarded}
}

func (d *Dashboard) startJob(w http.ResponseWriter, r *http.Request) {
	form, request, problems, err := d.jobForm(r, r.PostForm)
	if err != nil {
		d.fail(w, r, err)
		return
	}
	again := func(status int, n *notice) {
		form.Form.tell(problems)
		d.write(w, r, view{name: "newjob", title: "Start a job", nav: "jobs"}, status, n, form)
	}
	if len(problems) > 0 {
		again(http.StatusUnprocessableEntity, nil)
		return
	}
	job, err := d.config.Ops.StartJob(r.Context(), request, action(r))
	if err != nil {
		if errors.Is(err, ops.ErrUnknownDestination) {
			err = notStarted(http.StatusUnprocessableEntity)
		}
		status, n := d.refusal(err)
		if n == nil {
			d.fail(w, r, err)
			return
		}
		again(status, n)
		return
	}
	d.back(w, r, at("/jobs", job.ID), "job")
}

func (d *Dashboard) steerJob(w http.ResponseWriter, r *http.Request) {
	id, err := strconv.ParseInt(r.PathValue("id"), 10, 64)
	version, err2 := strconv.ParseInt(r.PostForm.Get("version"), 10, 64)
	if errors.Join(err, err2) != nil {
		d.fail(w, r, ops.ErrNotFound)
		return
	}
	what := r.PathValue("what")
	switch what {
	case "pause":
		_, err = d.config.Ops.PauseJob(r.Context(), id, version, action(r))
	case "resume":
		_, err = d.config.Ops.ResumeJob(r.Context(), id, version, action(r))
	case "cancel":
		_, err = d.config.Ops.CancelJob(r.Context(), id, version, action(r))
	default:
		err = ops.ErrNotFound
	}
	if err == nil {
		d.back(w, r, at("/jobs", id), "job-"+what)
		return
	}
	status, n := d.refusal(err)
	if n == nil {
		d.fail(w, r, err)
		return
	}
	d.show(w, r, view{name: "job", nav: "jobs", load: d.job}, status, n)
}
