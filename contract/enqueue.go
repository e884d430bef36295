package contract

import (
	"context"

	"github.com/pillarbox-dev/pillarbox/outbox"
)

// Enqueuer is what writes events: *outbox.Outbox.
type Enqueuer interface {
	Enqueue(ctx context.Context, tx outbox.Tx, events ...outbox.Event) ([]outbox.Result, error)
}

var _ Enqueuer = (*outbox.Outbox)(nil)

// Checked writes events that keep their contracts. A service that uses it learns of a breach where it can still be mended: in
// the code that makes the event.
type Checked struct {
	box       Enqueuer
	contracts *Contracts
}

// Checking returns an outbox that checks events before box writes them.
func Checking(box Enqueuer, c *Contracts) *Checked { return &Checked{box, c} }

// Enqueue is that of outbox.Outbox. Events that break their contracts are an *outbox.InvalidError: nothing is written, and the
// transaction is as good as before. Field is then Payload with the JSON Pointer behind it, like Payload/amount, or SchemaRef.
func (c *Checked) Enqueue(ctx context.Context, tx outbox.Tx, events ...outbox.Event) ([]outbox.Result, error) {
	var problems []outbox.Problem
	for i := range events {
		problems = append(problems, c.contracts.problems(i, &events[i])...)
	}
	if len(problems) > 0 {
		return nil, &outbox.InvalidError{Problems: problems}
	}
	return c.box.Enqueue(ctx, tx, events...)
}

func (c *Contracts) problems(place int, e *outbox.Event) (problems []outbox.Problem) {
	payload, binary := []byte(e.Payload), false
	if payload == nil {
		payload, binary = e.PayloadBytes, true
	}
	b := c.check(e.SchemaRef, payload, binary)
	switch {
	case b == nil:
		return nil
	case b.Code == CodeUnknown:
		return []outbox.Problem{{Event: place, Field: "SchemaRef", Problem: "names a contract that is not there",
			Hint: "add its schema, or correct it"}}
	case b.Code == CodeMissing:
		return []outbox.Problem{{Event: place, Field: "SchemaRef", Problem: "is empty",
			Hint: "name the contract that the payload keeps"}}
	}
	for _, field := range b.Fields {
		problems = append(problems, outbox.Problem{Event: place, Field: "Payload" + field.Pointer, Problem: field.Problem,
			Hint: "the contract is " + e.SchemaRef})
	}
	return problems
}
