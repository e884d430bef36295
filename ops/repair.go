package ops

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"

	"github.com/pillarbox-dev/pillarbox/outbox"
	"github.com/pillarbox-dev/pillarbox/relay"
)

// maxRepair is how big a payload may become; one that is bigger already may stay as big as it is.
const maxRepair = 1 << 20

// WithContract returns an Ops whose Repair holds events to their contracts: check is relay.DestinationConfig.Contract. Without it
// the relay is the one that finds out, and quarantines the event again.
func (o *Ops) WithContract(check func(*relay.Event) *relay.Outcome) *Ops {
	with := *o
	with.contract = check
	return &with
}

// Repair gives an event another payload, other headers or both, and sets the delivery going again, in one transaction. The
// delivery has to be FAILED or QUARANTINED. The event is the same for all destinations, so whoever delivers it from now on gets the
// new one; what another destination was sent before stays as it was, and Show tells. The operators' log keeps the old payload and
// headers beside the new ones.
//
// The errors are those of Retry; a *RefusedError also says what is wrong with the payload or the headers.
func (o *Ops) Repair(ctx context.Context, t Target, r Repair, a Action) (Delivery, error) {
	return o.act(ctx, "repair", t, a, func(ctx context.Context, s *act) error {
		if err := s.retryable(); err != nil {
			return err
		}
		old, err := readEvent(ctx, s.tx, s.texts.event, EventRef{Seq: t.Seq})
		if err != nil {
			return err
		}
		if err := r.check(o, old); err != nil {
			return err
		}
		repaired, err := r.apply(old)
		if err != nil {
			return err
		}
		if unchanged(old, repaired) {
			return &RefusedError{Why: "that is what the event says already: to send it as it is, retry it"}
		}
		if err := o.judge(repaired); err != nil {
			return err
		}
		if err := s.rewrite(ctx, repaired); err != nil {
			return err
		}
		if err := s.change(ctx, s.texts.retry); err != nil {
			return err
		}
		return s.record(ctx, a, repairState{stateOf(s.was), contentOf(old)},
			repairState{deliveryState{Status: relay.StatusPending}, contentOf(repaired)})
	})
}

// check holds the repair to the limits of outbox.Enqueue, with all problems in one error.
func (r Repair) check(o *Ops, old EventDetail) error {
	if r.Payload == nil && r.PayloadBytes == nil && r.Headers == nil {
		return &RefusedError{Why: "nothing is to be repaired: give a payload, headers or both"}
	}
	limits := outbox.Options{MaxPayloadBytes: max(maxRepair, len(old.Payload), len(old.PayloadBytes))}
	if o.isPostgres() {
		limits.Schema = o.schemaName
	}
	rules, err := outbox.New(o.dialect, limits)
	if err != nil {
		return err
	}
	err = rules.Check(outbox.Event{Topic: "t", Type: "T", Payload: r.Payload, PayloadBytes: r.PayloadBytes, Headers: r.Headers})
	var invalid *outbox.InvalidError
	if !errors.As(err, &invalid) {
		return err
	}
	var problems []error
	for _, p := range invalid.Problems {
		problems = append(problems, fmt.Errorf("%s %s: %s", p.Field, p.Problem, p.Hint))
	}
	return refuse(problems)
}

// apply returns the event as it will be.
func (r Repair) apply(e EventDetail) (EventDetail, error) {
	if r.Payload != nil {
		e.Payload, e.PayloadBytes = r.Payload, nil
	}
	if r.PayloadBytes != nil {
		e.Payload, e.PayloadBytes = nil, r.PayloadBytes
	}
	if r.Headers != nil {
		headers, err := jsonText(r.Headers)
		if err != nil {
			return e, fmt.Errorf("write the headers: %w", err)
		}
		e.Headers = json.RawMessage(headers)
	}
	return e, nil
}

func unchanged(a, b EventDetail) bool {
	return bytes.Equal(a.Payload, b.Payload) && bytes.Equal(a.PayloadBytes, b.PayloadBytes) &&
		(a.Payload == nil) == (b.Payload == nil) && (a.PayloadBytes == nil) == (b.PayloadBytes == nil) &&
		sameHeaders(a.Headers, b.Headers)
}

func sameHeaders(a, b json.RawMessage) bool {
	var was, is map[string]string
	if json.Unmarshal(a, &was) != nil || json.Unmarshal(b, &is) != nil {
		return bytes.Equal(a, b)
	}
	return maps.Equal(was, is)
}

// judge asks the contract.
func (o *Ops) judge(e EventDetail) error {
	if o.contract == nil {
		return nil
	}
	event := &relay.Event{Seq: e.Seq, ID: e.EventID, Topic: e.Topic, Key: e.Key, AggregateType: e.AggregateType,
		AggregateID: e.AggregateID, AggregateVersion: e.AggregateVersion, Type: e.EventType, Version: e.EventVersion,
		SchemaRef: e.SchemaRef, Payload: e.Payload, Headers: e.Headers, CreatedAt: e.CreatedAt}
	if e.PayloadBytes != nil {
		event.Payload, event.Binary = e.PayloadBytes, true
	}
	if outcome := o.contract(event); outcome != nil {
		return &RefusedError{Why: outcome.Code + ": " + outcome.Message}
	}
	return nil
}

func (s *act) rewrite(ctx context.Context, e EventDetail) error {
	var bytes any // a nil slice would be taken for an empty one
	if e.PayloadBytes != nil {
		bytes = e.PayloadBytes
	}
	var payload any
	if e.Payload != nil {
		payload = string(e.Payload)
	}
	if _, err := s.tx.ExecContext(ctx, s.texts.repair, e.Seq, payload, bytes, string(e.Headers)); err != nil {
		return fmt.Errorf("change the event: %w", err)
	}
	return nil
}

// repairState is what the operators' log says before and after a repair.
type repairState struct {
	deliveryState
	eventContent
}

// eventContent is what a repair can change. PayloadBytes is Base64 in JSON.
type eventContent struct {
	Payload      json.RawMessage `json:"payload,omitempty"`
	PayloadBytes []byte          `json:"payload_bytes,omitempty"`
	Headers      json.RawMessage `json:"headers"`
}

func contentOf(e EventDetail) eventContent { return eventContent{e.Payload, e.PayloadBytes, e.Headers} }
