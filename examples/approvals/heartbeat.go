package main

import (
	"strings"
	"time"

	"github.com/pillarbox-dev/pillarbox/examples/approvals/approval"
	"github.com/pillarbox-dev/pillarbox/ops"
	"github.com/pillarbox-dev/pillarbox/relay"
)

// heartbeat tells the audit store on a schedule how much there was to tell, or that there was nothing: silence is then a fault,
// and no longer good news. It goes the way of every other event: in the log, in order, held to the contract, signed.
func heartbeat(every time.Duration) ops.Heartbeat {
	return ops.Heartbeat{
		Name: "approvals", Every: every,
		Topic: approval.Topic, Key: approval.Key, EventType: "approval." + approval.Heartbeat, SchemaRef: approval.SchemaRef,
		Topics: relay.Topics{approval.Topic},
		Payload: func(c ops.HeartbeatCounts) ([]byte, error) {
			byClass := map[string]int64{}
			for eventType, n := range c.ByType {
				byClass[strings.TrimPrefix(eventType, "approval.")] = n
			}
			end := c.IntervalEnd.Format(time.RFC3339Nano)
			return approval.HeartbeatPayload(c.EventID, end, approval.Counts{
				From: c.IntervalStart.Format(time.RFC3339Nano), To: end, Events: c.Count, ByClass: byClass,
			})
		},
	}
}
