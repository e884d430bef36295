package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/pillarbox-dev/pillarbox/internal/reckon"
)

// client is people at work, and not all of them behave. It keeps a record of what the service has confirmed. A request that gets
// no answer is sent again: so it always learns how it ended, and the record is complete.
type client struct {
	url  string
	name string        // begins the names of its cases
	rest time.Duration // between two cases, on average

	mu         sync.Mutex
	committed  []reckon.Written
	rolledBack int
	faults     []error // answers that should not have been given
}

const (
	workers = 4
	tenant  = "registry"
	// patience is how long a request may go without an answer.
	patience = time.Minute
)

// run works until the context ends. What was begun is brought to its end.
func (c *client) run(ctx context.Context) error {
	errs := make([]error, workers)
	var working sync.WaitGroup
	for i := range workers {
		working.Go(func() {
			for n := 0; ctx.Err() == nil && errs[i] == nil; n++ {
				errs[i] = c.live(context.WithoutCancel(ctx), fmt.Sprintf("%s-%d-%d", c.name, i, n))
				time.Sleep(rand.N(2 * c.rest))
			}
		})
	}
	working.Wait()
	return errors.Join(errs...)
}

// live is the life of a case: it is submitted and accepted, unless somebody gives up on the way.
func (c *client) live(ctx context.Context, id string) error {
	submitted, err := c.insist(ctx, request{"/cases", "", fmt.Sprintf(`{"caseId": %q, "subject": "A shop in Mill Street"}`, id)})
	if err != nil || submitted.status == http.StatusInternalServerError {
		return err
	}
	// After an answer that was lost, the case is there already.
	if submitted.status != http.StatusCreated && (submitted.tries == 1 || submitted.code() != "CASE_EXISTS") {
		c.fault("%s was not submitted: %v", id, submitted)
		return nil
	}
	c.note(typeSubmitted, id, 1)
	accept := request{"/cases/" + id + "/accept", "accept-" + id, fmt.Sprintf(`{"acceptedBy": "officer-%d"}`, rand.IntN(10))}
	accepted, err := c.insist(ctx, accept)
	if err != nil || accepted.status == http.StatusInternalServerError {
		return err
	}
	if accepted.status != http.StatusOK {
		c.fault("%s was not accepted: %v", id, accepted)
		return nil
	}
	c.note(typeAccepted, id, 2)
	return c.misbehave(ctx, accept, accepted)
}

// misbehave asks for what was done already.
func (c *client) misbehave(ctx context.Context, accept request, first response) error {
	again, want := accept, func(r response) bool {
		return r.replayed && r.status == first.status && bytes.Equal(r.body, first.body)
	}
	switch rand.IntN(4) {
	case 0: // the same once more
	case 1: // the key for something else
		again.body = `{"acceptedBy": "somebody-else"}`
		want = func(r response) bool { return r.status == http.StatusUnprocessableEntity }
	case 2: // another officer accepts it too
		again.key += "-too"
		want = func(r response) bool { return r.status == http.StatusConflict && r.code() == "CASE_NOT_SUBMITTED" }
	default:
		return nil
	}
	r, err := c.insist(ctx, again)
	if err == nil && !want(r) {
		c.fault("%s with the key %s and %s was answered with %v", again.path, again.key, again.body, r)
	}
	return err
}

func (c *client) note(eventType, caseID string, version int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.committed = append(c.committed, reckon.Written{ID: businessID(eventType, caseID, version), Key: caseID})
}

func (c *client) fault(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.faults = append(c.faults, fmt.Errorf(format, args...))
}

// record returns what was committed, in order, how many events were rolled back, and what went wrong.
func (c *client) record() (committed []reckon.Written, rolledBack int, faults error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.committed), c.rolledBack, errors.Join(c.faults[:min(len(c.faults), 10)]...)
}

type request struct{ path, key, body string }

type response struct {
	status   int
	replayed bool
	body     []byte
	tries    int
}

func (r response) String() string { return fmt.Sprintf("%d %.200s", r.status, r.body) }

func (r response) code() string {
	var p problem
	_ = json.Unmarshal(r.body, &p) // what is no problem has no code
	return p.Code
}

// insist asks until there is an answer. After 500, where nothing was done, it gives up half of the time.
func (c *client) insist(ctx context.Context, req request) (r response, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for tries := 1; ; tries++ {
		var wait bool
		r, wait, err = c.ask(ctx, req)
		r.tries = tries
		if ctx.Err() != nil {
			return r, fmt.Errorf("%s has no answer within %v: %w", req.path, patience, err)
		}
		switch {
		case err != nil || wait:
			time.Sleep(50 * time.Millisecond)
		case r.status != http.StatusInternalServerError:
			return r, nil
		default:
			c.mu.Lock()
			c.rolledBack++
			c.mu.Unlock()
			if rand.IntN(2) == 0 {
				return r, nil
			}
		}
	}
}

// ask asks once. It tells whether the answer is to wait.
func (c *client) ask(ctx context.Context, req request) (r response, wait bool, err error) {
	asked, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url+req.path, strings.NewReader(req.body))
	if err != nil {
		return r, false, err
	}
	asked.Header.Set(tenantHeader, tenant)
	if req.key != "" {
		asked.Header.Set("Idempotency-Key", req.key)
	}
	answered, err := http.DefaultClient.Do(asked)
	if err != nil {
		return r, false, err
	}
	defer answered.Body.Close()
	r.status, r.replayed = answered.StatusCode, answered.Header.Get("Idempotency-Replayed") == "true"
	r.body, err = io.ReadAll(answered.Body)
	return r, answered.Header.Get("Retry-After") != "", err
}
