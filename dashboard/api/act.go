package api

import (
	"context"
	"encoding/json"
	"strconv"

	"github.com/pillarbox-dev/pillarbox/ops"
)

func (a *api) retry(c *call) (any, error) { return a.act(c, a.Ops.Retry) }

func (a *api) discard(c *call) (any, error) { return a.act(c, a.Ops.Discard) }

// act does something to a delivery, and answers with what it is then.
func (a *api) act(c *call, do func(context.Context, ops.Target, ops.Action) (ops.Delivery, error)) (any, error) {
	body, err := c.body(maxBody)
	if err != nil {
		return nil, err
	}
	target, action, err := c.target(body)
	if err != nil {
		return nil, err
	}
	if err := body.done(); err != nil {
		return nil, err
	}
	return do(c.Context(), target, action)
}

// target reads which delivery is meant, and why something is done to it.
func (c *call) target(body *fields) (ops.Target, ops.Action, error) {
	seq, err := strconv.ParseInt(c.PathValue("seq"), 10, 64)
	if err != nil || seq < 1 {
		return ops.Target{}, ops.Action{}, ops.ErrNotFound
	}
	target := ops.Target{Destination: c.PathValue("destination"), Seq: seq}
	body.version(&target.Version, "the version of the delivery, as text")
	if _, given := body.values["version"]; given && target.Version == "" {
		body.bad("version", "is empty: a delivery that waits in the log cannot be acted upon yet")
	}
	return target, ops.Action{By: c.who.Name, Reason: body.reason(false)}, nil
}

func (a *api) repair(c *call) (any, error) {
	body, err := c.body(maxRepairBody)
	if err != nil {
		return nil, err
	}
	target, action, err := c.target(body)
	if err != nil {
		return nil, err
	}
	repair := a.readRepair(c, body)
	if err := body.done(); err != nil {
		return nil, err
	}
	return a.Ops.Repair(c.Context(), target, repair, action)
}

// readRepair takes the payload as it stands in the body, byte for byte.
func (a *api) readRepair(c *call, body *fields) (r ops.Repair) {
	body.known = append(body.known, "payload")
	r.Payload = body.values["payload"]
	body.take("payload_bytes", &r.PayloadBytes, "the bytes in base64")
	body.take("headers", &r.Headers, "an object of texts")
	if r.Payload != nil && r.PayloadBytes != nil {
		body.bad("payload_bytes", "stands beside payload: send one of the two")
	}
	m := a.maskFor(c.who)
	for _, path := range m.Holds(r.Payload) {
		body.bad("payload", "holds the mask at %q: send the value that belongs there", path)
	}
	for _, path := range m.HoldsBytes(r.PayloadBytes) {
		body.bad("payload_bytes", "hold the mask at %q: send the bytes that belong there", path)
	}
	headers, _ := json.Marshal(r.Headers) // texts
	for _, path := range m.Holds(headers) {
		body.bad("headers", "hold the mask at %q: send the value that belongs there", path)
	}
	return r
}
