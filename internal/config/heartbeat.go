package config

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/itchyny/gojq"

	"github.com/pillarbox-dev/pillarbox/ops"
)

// Heartbeat is an event that is written on a schedule. See ops.Heartbeat.
type Heartbeat struct {
	Name          string            `yaml:"name" rule:"required" hint:"it is part of the dedup key"`
	Every         Duration          `yaml:"every" rule:"required" hint:"say how often: 24h"`
	Topic         string            `yaml:"topic" rule:"required" hint:"say which topic the event goes to"`
	Key           string            `yaml:"key,omitempty"`
	EventType     string            `yaml:"event_type,omitempty"`
	EventVersion  int               `yaml:"event_version,omitempty"`
	SchemaRef     string            `yaml:"schema_ref,omitempty"`
	AggregateType string            `yaml:"aggregate_type,omitempty"`
	AggregateID   string            `yaml:"aggregate_id,omitempty"`
	Headers       map[string]string `yaml:"headers,omitempty"`
	Topics        []string          `yaml:"topics,omitempty"`
	Payload       Verbatim          `yaml:"payload,omitempty"`
}

// Ops returns the heartbeat itself. The error is that of its jq expression.
func (h Heartbeat) Ops() (ops.Heartbeat, error) {
	beat := ops.Heartbeat{
		Name: h.Name, Every: time.Duration(h.Every), Topic: h.Topic, Key: h.Key, EventType: h.EventType, EventVersion: h.EventVersion,
		SchemaRef: h.SchemaRef, AggregateType: h.AggregateType, AggregateID: h.AggregateID, Headers: h.Headers, Topics: h.Topics,
	}
	if h.Payload == "" {
		return beat, nil
	}
	code, err := compile(string(h.Payload))
	if err != nil {
		return beat, fmt.Errorf("payload: %w: write one like {status: (if .count == 0 then \"NOTHING_TO_REPORT\" else \"OK\" "+
			"end), count}", err)
	}
	beat.Payload = func(c ops.HeartbeatCounts) ([]byte, error) { return evaluate(code, c) }
	return beat, nil
}

// compile gives the expression neither an environment nor modules nor further inputs.
func compile(expression string) (*gojq.Code, error) {
	query, err := gojq.Parse(expression)
	if err != nil {
		return nil, err
	}
	return gojq.Compile(query)
}

// payloadTimeout bounds the work of an expression.
const payloadTimeout = time.Second

// evaluate returns the one result of an expression over the counts.
func evaluate(code *gojq.Code, c ops.HeartbeatCounts) ([]byte, error) {
	text, err := json.Marshal(c)
	if err != nil {
		return nil, err
	}
	var input any
	if err := json.NewDecoder(bytes.NewReader(text)).Decode(&input); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), payloadTimeout)
	defer cancel()
	results := code.RunWithContext(ctx, input)
	result, ok := results.Next()
	if !ok {
		return nil, errors.New("the expression gives no result: let it give one object")
	}
	if err, failed := result.(error); failed {
		return nil, fmt.Errorf("the expression fails: %w", err)
	}
	if _, more := results.Next(); more {
		return nil, errors.New("the expression gives more than one result: let it give one object")
	}
	return gojq.Marshal(result)
}

func (d *decoder) checkHeartbeats(c *Config) {
	names := map[string]bool{}
	for n, h := range c.Heartbeats {
		path := fmt.Sprintf("heartbeats[%d]", n)
		if d.failedBelow(path) {
			continue
		}
		beat, err := h.Ops()
		for _, problem := range Each(errors.Join(beat.Check(), err)) {
			if problem != nil {
				d.wrong(path, path+": "+problem.Error(), "")
			}
		}
		if names[h.Name] {
			d.wrong(path, path+": the name "+h.Name+" is taken", "give each heartbeat its own")
		}
		names[h.Name] = true
		if every := time.Duration(h.Every); every < time.Second && every >= ops.MinHeartbeat {
			d.wrong(path, path+": every is less than a second", "say how often: 24h")
		}
	}
}
