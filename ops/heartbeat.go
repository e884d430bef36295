package ops

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/pillarbox-dev/pillarbox/outbox"
	"github.com/pillarbox-dev/pillarbox/relay"
)

// Heartbeat is an event that is written on a schedule, whatever happens: a receiver that misses one knows that something is
// wrong, and one that gets it knows how much there was to get.
//
// There is one event for each interval however many processes run it. Intervals begin at the multiples of Every since the Unix
// epoch, by the database's clock: with 24h at midnight UTC. While nobody ran none was written, and the next one spans all of
// them.
type Heartbeat struct {
	// Name is part of the dedup key: lower-case letters, digits, dots and dashes, at most 100.
	Name  string
	Every time.Duration // at least MinHeartbeat

	// Topic is required; EventType is Heartbeat by default.
	Topic, Key, EventType, SchemaRef string
	EventVersion                     int
	AggregateType, AggregateID       string
	Headers                          map[string]string

	// Topics are what is counted; none: all. Heartbeats are never counted.
	Topics relay.Topics
	// Payload makes the payload, as JSON. Default: HeartbeatCounts.Payload.
	Payload func(HeartbeatCounts) ([]byte, error)
}

// HeartbeatCounts is what a heartbeat tells.
type HeartbeatCounts struct {
	// EventID is the id of the event that tells it, a UUIDv7.
	EventID       string    `json:"event_id"`
	Name          string    `json:"name"`
	IntervalStart time.Time `json:"interval_start"`
	IntervalEnd   time.Time `json:"interval_end"`
	// Since is the number of the log behind which was counted.
	Since int64 `json:"since_seq"`
	// Count are the events that were committed since the heartbeat before, each of them counted by one heartbeat; one of a
	// transaction that was long on its way is counted when it arrives. AtLeast: there were more than could be counted.
	Count   int64            `json:"count"`
	AtLeast bool             `json:"at_least"`
	ByTopic map[string]int64 `json:"by_topic"`
	ByType  map[string]int64 `json:"by_type"`
	// Destinations is where the deliveries stand at this moment.
	Destinations []HeartbeatDestination `json:"destinations"`
}

// HeartbeatDestination is where the deliveries to one destination stand.
type HeartbeatDestination struct {
	Destination string `json:"destination"`
	Pending     Count  `json:"pending"`
	Failed      Count  `json:"failed"`
	Quarantined Count  `json:"quarantined"`
}

// Payload is the default payload.
func (c HeartbeatCounts) Payload() ([]byte, error) {
	return json.Marshal(struct {
		Name            string           `json:"name"`
		IntervalStart   time.Time        `json:"interval_start"`
		IntervalEnd     time.Time        `json:"interval_end"`
		Count           int64            `json:"count"`
		AtLeast         bool             `json:"at_least,omitempty"`
		ByType          map[string]int64 `json:"by_type"`
		NothingToReport bool             `json:"nothing_to_report"`
	}{c.Name, c.IntervalStart, c.IntervalEnd, c.Count, c.AtLeast, c.ByType, c.Count == 0})
}

const (
	heartbeatPoll    = 30 * time.Second // how long one sleeps at most, so that a clock that is set does no harm
	heartbeatMaxFail = time.Minute
)

// MinHeartbeat is the shortest interval.
const MinHeartbeat = 100 * time.Millisecond

var heartbeatName = regexp.MustCompile(`^[a-z0-9][a-z0-9.-]{0,99}$`)

// Check returns every problem of a heartbeat.
func (h Heartbeat) Check() error {
	var problems []error
	if !heartbeatName.MatchString(h.Name) {
		problems = append(problems, fmt.Errorf("name %q: use lower-case letters, digits, dots and dashes, at most 100",
			shortened(h.Name, 120)))
	}
	if h.Every < MinHeartbeat || h.Every%time.Microsecond != 0 {
		problems = append(problems, fmt.Errorf("every %v: use at least %v, in whole microseconds", h.Every, MinHeartbeat))
	}
	if h.Topic == "" {
		problems = append(problems, errors.New("topic is missing: say which topic the event goes to"))
	}
	return errors.Join(problems...)
}

func (h Heartbeat) task() string { return "heartbeat/" + h.Name }

// beater writes one heartbeat.
type beater struct {
	*Ops
	Heartbeat
	box     *outbox.Outbox
	queries struct{ due, clock, end, last, count, store, failed string }
	log     *slog.Logger
	told    string // the error that was logged last
}

func (o *Ops) newBeater(h Heartbeat, log *slog.Logger) (*beater, error) {
	if err := h.Check(); err != nil {
		return nil, fmt.Errorf("heartbeat %s: %w", h.Name, err)
	}
	box, err := outbox.New(o.dialect, outbox.Options{Schema: o.schemaName})
	if err != nil {
		return nil, err
	}
	if h.EventType == "" {
		h.EventType = "Heartbeat"
	}
	if h.Payload == nil {
		h.Payload = HeartbeatCounts.Payload
	}
	b := &beater{Ops: o, Heartbeat: h, box: box, log: log}
	q := &b.queries
	return b, fill(o.dialect, o.schemaName, map[string]*string{
		"heartbeat_due": &q.due, "clock": &q.clock, "heartbeat_end": &q.end, "heartbeat_last": &q.last,
		"heartbeat_count": &q.count, "heartbeat_store": &q.store, "heartbeat_failed": &q.failed,
	})
}

// RunHeartbeats writes heartbeats until the context ends. Any number of processes may run the same ones. Errors are logged when
// they are new and kept in outbox_task; the heartbeat is tried again. The error is for heartbeats that make no sense.
func (o *Ops) RunHeartbeats(ctx context.Context, heartbeats []Heartbeat, log *slog.Logger) error {
	var beaters []*beater
	var problems []error
	for _, h := range heartbeats {
		b, err := o.newBeater(h, log)
		problems, beaters = append(problems, err), append(beaters, b)
	}
	if err := errors.Join(problems...); err != nil {
		return err
	}
	var running sync.WaitGroup
	for _, b := range beaters {
		running.Go(func() { b.run(ctx) })
	}
	running.Wait()
	return nil
}

func (b *beater) run(ctx context.Context) {
	fails := 0
	for ctx.Err() == nil {
		wait, err := b.turn(ctx)
		if ctx.Err() == nil {
			b.tell(ctx, err)
		}
		if fails++; err == nil {
			fails = 0
		} else {
			wait = min(heartbeatMaxFail, time.Second<<min(fails-1, 10))
		}
		select {
		case <-ctx.Done():
		case <-time.After(min(wait, heartbeatPoll)):
		}
	}
}

// tell logs an error when it is new, and that all is well again.
func (b *beater) tell(ctx context.Context, err error) {
	text := ""
	if err != nil {
		text = err.Error()
		if _, e := b.db.ExecContext(ctx, b.queries.failed, b.task(), shortened(text, MaxTaskError)); e != nil {
			b.log.Debug("the failure of a heartbeat cannot be written down", "heartbeat", b.Name, "error", e)
		}
	}
	switch {
	case text == b.told:
	case err != nil:
		b.log.Warn("a heartbeat cannot be written", "heartbeat", b.Name, "error", err)
	default:
		b.log.Info("a heartbeat is well again", "heartbeat", b.Name)
	}
	b.told = text
}

// Beat writes the heartbeat if it is due. It returns how long it is until the next one is.
func (o *Ops) Beat(ctx context.Context, h Heartbeat) (next time.Duration, err error) {
	b, err := o.newBeater(h, slog.New(slog.DiscardHandler))
	if err != nil {
		return 0, err
	}
	return b.turn(ctx)
}

// turn looks without a lock first: most turns find that another process was faster.
func (b *beater) turn(ctx context.Context) (next time.Duration, err error) {
	failed := func(err error) (time.Duration, error) {
		return 0, fmt.Errorf("heartbeat %s: %w%s", b.Name, err, b.rights(err))
	}
	var now, due int64
	if err := b.db.QueryRowContext(ctx, b.queries.due, b.task()).Scan(&now, &due); err != nil {
		return failed(fmt.Errorf("look whether it is due: %w", err))
	}
	if due > now {
		return time.Duration(due-now) * time.Microsecond, nil
	}
	status, err := b.Status(ctx) // before the transaction: it has one of its own
	if err != nil {
		return failed(err)
	}
	if next, err = b.beat(ctx, status); err != nil {
		return failed(err)
	}
	return next, nil
}

// beat counts, writes the event and moves the state on, in one transaction that has the state's row locked. So each interval has
// one event, also when the process dies at any point; the dedup key stands for the case that the state is lost.
func (b *beater) beat(ctx context.Context, status Status) (time.Duration, error) {
	tx, err := b.db.BeginTx(ctx, &sql.TxOptions{Isolation: b.Ops.queries.change})
	if err != nil {
		return 0, err
	}
	defer tx.Rollback()
	var s beatState
	if err := b.LoadState(ctx, tx, b.task(), &s); err != nil {
		return 0, err
	}
	var micros int64
	if err := tx.QueryRowContext(ctx, b.queries.clock).Scan(&micros); err != nil {
		return 0, err
	}
	now := time.UnixMicro(micros).UTC()
	end := epochMultiple(now, b.Every)
	next := end.Add(b.Every)
	switch {
	case s.End.IsZero(): // the first time: it counts from here on
		if err := tx.QueryRowContext(ctx, b.queries.end).Scan(&s.Seq); err != nil {
			return 0, err
		}
	case !end.After(s.End):
		return max(0, s.End.Add(b.Every).Sub(now)), nil
	default:
		if err := b.write(ctx, tx, &s, end, status); err != nil {
			return 0, err
		}
	}
	s.End = end
	text, err := json.Marshal(s)
	if err != nil {
		return 0, err
	}
	if _, err := tx.ExecContext(ctx, b.queries.store, b.task(), string(text), next.UnixMicro()); err != nil {
		return 0, fmt.Errorf("store the state: %w", err)
	}
	if err := tx.Commit(); err != nil {
		return 0, err
	}
	return next.Sub(now), nil
}

// write counts and writes the event of the interval from the state's end to another one.
func (b *beater) write(ctx context.Context, tx *sql.Tx, s *beatState, end time.Time, status Status) error {
	if err := b.followLog(ctx, tx, s); err != nil {
		return fmt.Errorf("see whether the log's numbers went back: %w", err)
	}
	id, err := uuid.NewV7()
	if err != nil {
		return fmt.Errorf("make an event id: %w", err)
	}
	c := HeartbeatCounts{
		EventID: id.String(), Name: b.Name, IntervalStart: s.End.UTC(), IntervalEnd: end, Since: s.Seq,
		ByTopic: map[string]int64{}, ByType: map[string]int64{}, Destinations: []HeartbeatDestination{},
	}
	for _, d := range status.Destinations {
		c.Destinations = append(c.Destinations, HeartbeatDestination{d.Destination, d.Pending, d.Failed, d.Quarantined})
	}
	if err := b.tally(ctx, tx, s, &c); err != nil {
		return fmt.Errorf("count: %w", err)
	}
	payload, err := b.Payload(c)
	if err != nil {
		return fmt.Errorf("make the payload: %w", err)
	}
	_, err = b.box.Enqueue(ctx, tx, outbox.Event{
		ID: c.EventID, Topic: b.Topic, Key: b.Key, Type: b.EventType, Version: b.EventVersion, SchemaRef: b.SchemaRef,
		AggregateType: b.AggregateType, AggregateID: b.AggregateID, Headers: b.Headers, Payload: payload,
		DedupKey: b.task() + "/" + c.IntervalStart.Format(time.RFC3339Nano),
	})
	return err
}

func (b *beater) rights(err error) string {
	if !lacksRights(err) {
		return ""
	}
	return ": the role writes events, which takes the grants of the app's role as well: pillarbox migrate --print-roles prints them"
}

// epochMultiple is the last multiple of every since the Unix epoch that has passed.
func epochMultiple(now time.Time, every time.Duration) time.Time {
	micros, step := now.UnixMicro(), every.Microseconds()
	return time.UnixMicro(micros - micros%step).UTC()
}
