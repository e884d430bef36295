package api

import (
	"context"
	"errors"
	"net/http"
	"strings"

	"github.com/pillarbox-dev/pillarbox/dashboard/access"
	"github.com/pillarbox-dev/pillarbox/ops"
)

// problem is an error as RFC 9457 has it.
type problem struct {
	// Type is a word that does not change, for programs; it is written as urn:pillarbox:problem:….
	Type   string `json:"type"`
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail"`
	// Hint says what to do.
	Hint string `json:"hint,omitempty"`
	// Errors are all that is wrong with the parameters or the body.
	Errors []fault `json:"errors,omitempty"`
	// Current is the delivery or the job as it is, when it has changed since it was looked at.
	Current any `json:"current,omitempty"`
}

// fault is one thing that is wrong with a request.
type fault struct {
	// Pointer names a field of the body (a JSON pointer), Parameter one of the address.
	Pointer   string `json:"pointer,omitempty"`
	Parameter string `json:"parameter,omitempty"`
	Detail    string `json:"detail"`
}

func (p problem) Error() string { return p.Detail }

func (p problem) write(w http.ResponseWriter) {
	p.Type = "urn:pillarbox:problem:" + p.Type
	p.Title = http.StatusText(p.Status)
	write(w, p.Status, "application/problem+json", p)
}

// Refuse answers what package access does not let in. It is for access.WrapAPI.
func Refuse(w http.ResponseWriter, _ *http.Request, r access.Refusal) {
	kind := map[int]string{
		http.StatusUnauthorized: "unauthorized", http.StatusTooManyRequests: "too-many-attempts",
	}[r.Status]
	if kind == "" {
		kind = "forbidden"
	}
	problem{Status: r.Status, Type: kind, Detail: r.Detail, Hint: r.Hint}.write(w)
}

// problemOf turns an error of ops into the answer to it. known is false for what is no one's fault but ours.
func problemOf(err error) (p problem, known bool) {
	var (
		conflict    *ops.ConflictError
		jobConflict *ops.JobConflictError
		refused     *ops.RefusedError
	)
	switch {
	case errors.As(err, &p):
		return p, true
	case errors.As(err, &conflict):
		return problem{Status: http.StatusConflict, Type: "conflict", Detail: conflict.Error(), Current: conflict.Now,
			Hint: "decide again, with the version of current"}, true
	case errors.As(err, &jobConflict):
		return problem{Status: http.StatusConflict, Type: "conflict", Detail: jobConflict.Error(), Current: jobConflict.Now,
			Hint: "decide again, with the version of current"}, true
	case errors.As(err, &refused):
		return refusedProblem(refused), true
	case errors.Is(err, ops.ErrNotPaused):
		return problem{Status: http.StatusConflict, Type: "not-paused", Detail: err.Error()}, true
	case errors.Is(err, ops.ErrBadPage):
		return problem{Status: http.StatusBadRequest, Type: "malformed", Detail: err.Error(),
			Errors: []fault{{Parameter: "after", Detail: ops.ErrBadPage.Error()}}}, true
	case errors.Is(err, ops.ErrUnknownDestination):
		return problem{Status: http.StatusNotFound, Type: "not-found", Detail: err.Error()}, true
	case errors.Is(err, ops.ErrNotFound):
		return problem{Status: http.StatusNotFound, Type: "not-found", Detail: err.Error(),
			Hint: "check the number or the id; what retention has deleted is gone"}, true
	case errors.Is(err, context.DeadlineExceeded):
		return problem{Status: http.StatusServiceUnavailable, Type: "unavailable", Detail: "the database has not answered in time",
			Hint: "try again; see GET " + Prefix + "/health"}, false
	case isForbidden(err):
		return problem{Status: http.StatusInternalServerError, Type: "internal",
			Detail: "the database refuses it to this process's role",
			Hint:   "give the role what 'pillarbox migrate --print-roles' prints for operators"}, false
	}
	return problem{Status: http.StatusInternalServerError, Type: "internal", Detail: "the request failed inside",
		Hint: "the log of the process says why"}, false
}

// refusedProblem says all of what ops has against a request; each line of its error is one thing.
func refusedProblem(refused *ops.RefusedError) problem {
	p := problem{Status: http.StatusUnprocessableEntity, Type: "refused", Detail: refused.Why}
	if lines := strings.Split(refused.Why, "\n"); len(lines) > 1 {
		p.Detail = "the request makes no sense for several reasons"
		for _, line := range lines {
			p.Errors = append(p.Errors, fault{Detail: line})
		}
	}
	return p
}

// isForbidden tells PostgreSQL's insufficient_privilege.
func isForbidden(err error) bool {
	var coded interface{ SQLState() string }
	return errors.As(err, &coded) && coded.SQLState() == "42501"
}
