package dashboard

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/pillarbox-dev/pillarbox/dashboard/access"
	"github.com/pillarbox-dev/pillarbox/dashboard/mask"
	"github.com/pillarbox-dev/pillarbox/ops"
)

// maxForm is how much a form may send: a payload and its headers, each character of them escaped.
const maxForm = 3*maxShown + 64<<10

// done are the words for what has been done, which the page says that a form leads back to.
var done = map[string]string{
	"retry":      "It is set going again. A relay takes it within seconds.",
	"discard":    "It is discarded: it will not be delivered.",
	"repair":     "The event is repaired and set going again. A relay takes it within seconds.",
	"pause":      "It is paused. A relay finishes what is under way and stops within a third of its lease.",
	"resume":     "It goes on. A relay notices within a third of its lease.",
	"job":        "The job has started. A running relay process works on it.",
	"job-pause":  "The job is paused.",
	"job-resume": "The job goes on.",
	"job-cancel": "The job is cancelled. What it has done stays done.",
}

// told is the notice of a page that a form has led back to.
func told(r *http.Request) *notice {
	if text := done[r.URL.Query().Get("done")]; text != "" {
		return &notice{Kind: "good", Text: text}
	}
	return nil
}

// operate adds a form's address. It is for operators, and reads the form.
func (d *Dashboard) operate(mux *http.ServeMux, pattern string, do http.HandlerFunc) {
	mux.Handle("POST "+pattern, access.RequireOperator(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Body = http.MaxBytesReader(w, r.Body, maxForm)
		if err := r.ParseForm(); err != nil {
			var large *http.MaxBytesError
			if errors.As(err, &large) {
				d.fail(w, r, &statusError{http.StatusRequestEntityTooLarge, "The form is too large",
					"Use the command line or the API for a payload of this size."})
				return
			}
			d.fail(w, r, &statusError{http.StatusBadRequest, "The form could not be read", "Go back, reload the page, and try again."})
			return
		}
		r, cancel := withTimeout(r)
		defer cancel()
		do(w, r)
	})))
}

// action is who acts and why, out of a form.
func action(r *http.Request) ops.Action {
	return ops.Action{By: access.Who(r).Name, Reason: strings.TrimSpace(r.PostForm.Get("reason"))}
}

// back leads to a page that says what was done, so that reloading it does not do it again.
func (d *Dashboard) back(w http.ResponseWriter, r *http.Request, path, what string) {
	http.Redirect(w, r, d.config.Base+path+"?done="+url.QueryEscape(what), http.StatusSeeOther)
}

// actOnDelivery does what a form of an event's page asks for.
func (d *Dashboard) actOnDelivery(w http.ResponseWriter, r *http.Request) {
	seq, err := strconv.ParseInt(r.PathValue("seq"), 10, 64)
	if err != nil {
		d.fail(w, r, ops.ErrNotFound)
		return
	}
	target := ops.Target{Destination: r.PathValue("destination"), Seq: seq, Version: r.PostForm.Get("version")}
	what := r.PathValue("what")
	switch what {
	case "retry":
		_, err = d.config.Ops.Retry(r.Context(), target, action(r))
	case "discard":
		_, err = d.config.Ops.Discard(r.Context(), target, action(r))
	case "repair":
		err = d.repair(r, target)
	default:
		err = ops.ErrNotFound
	}
	if err != nil {
		d.refuse(w, r, target, what, err)
		return
	}
	d.back(w, r, at("/events", seq), what)
}

// refuse shows the event as it is now, with what stands in the way. What was typed into a repair is kept.
func (d *Dashboard) refuse(w http.ResponseWriter, r *http.Request, target ops.Target, what string, cause error) {
	status, n := d.refusal(cause)
	if n == nil {
		d.fail(w, r, cause)
		return
	}
	detail, err := d.config.Ops.Show(r.Context(), ops.EventRef{Seq: target.Seq})
	if err != nil {
		d.fail(w, r, err)
		return
	}
	p := d.eventPage(detail, d.maskFor(access.Who(r)))
	for i := range p.Cards {
		c := &p.Cards[i]
		if what == "repair" && c.Destination == target.Destination && c.CanRepair {
			c.Repair.Payload, c.Repair.Headers = r.PostForm.Get("payload"), r.PostForm.Get("headers")
			c.Repair.Reason, c.Repair.Open, c.Repair.Problem = r.PostForm.Get("reason"), true, n.Text
		}
	}
	d.write(w, r, viewEvent(d), status, n, p)
}

// refusal turns what ops refuses into words; nil: it is no refusal.
func (d *Dashboard) refusal(cause error) (int, *notice) {
	var conflict *ops.ConflictError
	var job *ops.JobConflictError
	var refused *ops.RefusedError
	var wrong *statusError
	switch {
	case errors.As(cause, &conflict):
		return http.StatusConflict, &notice{Kind: "bad", Now: &conflict.Now,
			Text: "Nothing was done: somebody, or a relay, was quicker. This is what it is now; look at it, and decide again."}
	case errors.As(cause, &job):
		return http.StatusConflict, &notice{Kind: "bad",
			Text: "Nothing was done: the job has changed since you looked. It is " + string(job.Now.State) + " now."}
	case errors.As(cause, &refused):
		return http.StatusUnprocessableEntity, &notice{Kind: "bad", Text: "Nothing was done: " + refused.Why}
	case errors.As(cause, &wrong):
		return wrong.status, &notice{Kind: "bad", Text: "Nothing was done: " + wrong.text + ". " + wrong.hint}
	}
	return 0, nil
}

// repair sends what a form has changed of the event.
func (d *Dashboard) repair(r *http.Request, target ops.Target) error {
	detail, err := d.config.Ops.Show(r.Context(), ops.EventRef{Seq: target.Seq})
	if err != nil {
		return err
	}
	change, err := changed(detail, d.maskFor(access.Who(r)), r.PostForm.Get("payload"), r.PostForm.Get("headers"))
	if err != nil {
		return err
	}
	_, err = d.config.Ops.Repair(r.Context(), target, change, action(r))
	return err
}

// changed compares the fields of a form with what they were filled with. What is the same stays as it is, byte for byte.
func changed(detail ops.EventDetail, m *mask.Mask, payload, headers string) (ops.Repair, error) {
	var change ops.Repair
	was := formOf(detail, m)
	payload, headers = lines(payload), lines(headers)
	if !was.Bytes && payload != lines(was.Payload) {
		if err := check("The payload", payload, m); err != nil {
			return change, err
		}
		change.Payload = alike(json.RawMessage(payload), detail.Payload)
	}
	if headers != lines(was.Headers) {
		if err := check("The headers", headers, m); err != nil {
			return change, err
		}
		if err := json.Unmarshal([]byte(headers), &change.Headers); err != nil || change.Headers == nil {
			return change, wrong("The headers are no flat object of strings", `Write {"name": "value"}, every value in quotes.`)
		}
	}
	if change.Payload == nil && change.Headers == nil {
		return change, wrong("The payload and the headers are what they were",
			"Change what is wrong in them, or use “Retry” to send it again as it is.")
	}
	return change, nil
}

// lines undoes what browsers do to line ends in a field.
func lines(text string) string { return strings.TrimSpace(strings.ReplaceAll(text, "\r\n", "\n")) }

// alike writes a new payload as the old one was written: on one line, or as it comes.
func alike(document, like json.RawMessage) json.RawMessage {
	var compact bytes.Buffer
	if json.Compact(&compact, like) == nil && bytes.Equal(compact.Bytes(), like) {
		compact.Reset()
		if json.Compact(&compact, document) == nil {
			return compact.Bytes()
		}
	}
	return document
}

// check says where a text stops being JSON, and whether it holds what was masked when it was shown.
func check(what, text string, m *mask.Mask) error {
	var whole json.RawMessage
	err := json.Unmarshal([]byte(text), &whole)
	if err == nil {
		if hidden := m.Holds(whole); len(hidden) > 0 {
			return wrong(fmt.Sprintf("%s: %s stands at %s", what, mask.Text, strings.Join(hidden, ", ")),
				"Write the values there, or leave the repair to somebody who may see them.")
		}
		return nil
	}
	where := ""
	var syntax *json.SyntaxError
	if errors.As(err, &syntax) {
		before := text[:min(max(int(syntax.Offset)-1, 0), len(text))]
		line := strings.Count(before, "\n") + 1
		where = fmt.Sprintf(", line %d, column %d", line, len([]rune(before[strings.LastIndexByte(before, '\n')+1:]))+1)
	}
	return wrong(what+" is not JSON"+where, "It says: "+err.Error())
}
