package ops

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/pillarbox-dev/pillarbox/relay"
)

const inboxHint = "the destination has acknowledged it and the consumer has not handled it: look for it at the consumer " +
	"(its errors, its dead letters, its lag), then deliver it again with 'pillarbox replay'"

// inboxes asks each consumer for what was published to it.
func (r *reconciliation) inboxes(ctx context.Context) (Finding, error) {
	f := Finding{Rows: []map[string]any{}, Hint: inboxHint}
	var problems []error
	for _, check := range r.config.Inboxes {
		c := r.cursors[check.Destination]
		if c == nil || c.first == 0 {
			continue // nothing was delivered yet
		}
		var handled string
		err := fill(check.Dialect, check.Schema, map[string]*string{"reconcile_inbox": &handled})
		if err == nil {
			i := inboxComparison{reconciliation: r, check: check, handled: handled}
			err = r.compare(ctx, "inbox/"+check.Destination+"/"+check.Consumer, c, i.look, &f)
		}
		if err != nil {
			problems = append(problems, fmt.Errorf("%s at %s: %w%s", check.Consumer, check.Destination, err,
				readHint(err, "outbox_inbox")))
		}
	}
	return f, errors.Join(problems...)
}

type inboxComparison struct {
	*reconciliation
	check   InboxCheck
	handled string // statement
}

// publication is a row of the ledger that the inbox is asked about.
type publication struct {
	seq              int64
	id, topic, event string
	age              time.Duration
}

// look finds what was published long enough ago and is not in the inbox. What is not settled, or was published just now, stays
// open.
func (i *inboxComparison) look(ctx context.Context, after, to int64) (seen []sighting, through int64, err error) {
	due, seen, through, err := i.published(ctx, after, to)
	if err != nil || len(due) == 0 {
		return seen, through, err
	}
	handled, err := i.ask(ctx, due)
	if err != nil {
		return nil, after, fmt.Errorf("ask the inbox: %w", err)
	}
	for _, p := range due {
		if handled[p.id] {
			continue
		}
		seen = append(seen, sighting{p.seq, map[string]any{
			"problem": "not in the inbox", "destination": i.check.Destination, "consumer": i.check.Consumer, "seq": p.seq,
			"event_id": p.id, "topic_name": p.topic, "event_type": p.event, "published_ago": p.age.Round(time.Second).String(),
		}})
	}
	return seen, through, nil
}

// published returns what is to be asked for, and what stays open.
func (i *inboxComparison) published(ctx context.Context, after, to int64) (
	due []publication, open []sighting, through int64, err error) {
	wait := cmp.Or(i.check.After, DefaultAfter)
	looked, last := int64(0), after
	args := []any{i.check.Destination, after, to, reconcileChunk}
	err = i.read(ctx, i.queries.published, args, func(scan func(...any) error) error {
		var p publication
		var status relay.Status
		var micros int64
		if err := scan(&p.seq, &status, &p.id, &p.topic, &p.event, &micros); err != nil {
			return err
		}
		p.age = time.Duration(micros) * time.Microsecond
		looked, last = looked+1, p.seq
		switch {
		case status == relay.StatusDiscarded, p.id == "", i.check.Keeps > 0 && p.age > i.check.Keeps:
		case status != relay.StatusPublished, p.age < wait:
			open = append(open, sighting{seq: p.seq})
		default:
			due = append(due, p)
		}
		return nil
	})
	return due, open, reached(last, looked, to), err
}

// ask returns which of the events the consumer has handled.
func (i *inboxComparison) ask(ctx context.Context, due []publication) (map[string]bool, error) {
	ids := make([]string, len(due))
	for n, p := range due {
		ids[n] = p.id
	}
	text, err := json.Marshal(ids)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, reconcileTimeout)
	defer cancel()
	rows, err := i.check.DB.QueryContext(ctx, i.handled, i.check.Consumer, string(text))
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	handled := make(map[string]bool, len(ids))
	for rows.Next() {
		var id string
		if err := rows.Scan(&id); err != nil {
			return nil, err
		}
		handled[id] = true
	}
	return handled, rows.Err()
}

// readHint says what helps when a role may not read a table; "" for other errors.
func readHint(err error, what string) string {
	if !lacksRights(err) {
		return ""
	}
	return ": grant select on " + what + " to the role of that connection"
}
