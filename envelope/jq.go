package envelope

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/itchyny/gojq"
	"github.com/pillarbox-dev/pillarbox/envelope/internal/jsontext"
	"github.com/pillarbox-dev/pillarbox/relay"
)

// JQ are the options of the envelope jq: the value is whatever an expression makes of the event.
//
// The expression (https://jqlang.org/manual; the implementation is gojq, and its README lists the differences) gets one object:
//
//	{"eventId", "eventType", "eventVersion", "schemaRef", "topic", "partitionKey", "aggregateType", "aggregateId",
//	 "aggregateVersion", "producer", "occurredAt", "publishedAt", "headers": {…}, "payload": …}
//
// with payload null when there is none, and payloadBase64 instead of it when it is not JSON. It must give exactly one result:
// none (empty) would lose the event. It cannot see the environment or files, and nothing it does is kept until the next event.
//
// What stays exact: an object or array of the event that gets into the result as it is keeps its bytes (order of members,
// digits, white space), however deep in the result it stands. Numbers that are only moved keep their text; sums, differences
// and products of whole numbers are exact at any size. What does not: the members of objects that the expression makes or
// changes are sorted by name; strings that stand there are escaped anew; calculations with decimals or exponents, quotients
// that are not whole, and math functions are float64; of two members with one name the last counts when the object is changed.
type JQ struct {
	// Expression is required.
	Expression string
	// Timeout bounds the work on one event. It is looked at between the steps of the expression, not within a built-in function,
	// and memory is not bounded meanwhile. Default 1 s.
	Timeout time.Duration
	// ContentType is the media type of the result. Default application/json.
	ContentType string
}

// MaxJQResult is how many bytes a result may have.
const MaxJQResult = 16 << 20

func (q *JQ) problems() (problems []error) {
	wrong := func(format string, args ...any) { problems = append(problems, fmt.Errorf(format, args...)) }
	if q.Timeout < 0 {
		wrong("jq.timeout %v is negative: use a time like 1s, or none for the default", q.Timeout)
	}
	if q.ContentType != "" && !isMediaType(q.ContentType) {
		wrong("jq.content_type %q is no media type: write it like application/vnd.example+json", q.ContentType)
	}
	return problems
}

type jq struct {
	code            *gojq.Code
	timeout         time.Duration
	contentType     string
	producer        string
	dropsTombstones bool
	now             func() time.Time
}

func newJQ(c *Config) (Envelope, []error) {
	options := JQ{}
	if c.JQ != nil {
		options = *c.JQ
	}
	problems := options.problems()
	made := &jq{timeout: options.Timeout, contentType: options.ContentType, producer: c.Producer,
		dropsTombstones: c.dropsTombstones(), now: c.Now}
	if made.timeout == 0 {
		made.timeout = time.Second
	}
	if made.contentType == "" {
		made.contentType = typeJSON
	}
	var err error
	if made.code, err = compile(options.Expression); err != nil {
		problems = append(problems, fmt.Errorf("jq.expression: %w: write one like {id: .eventId, data: .payload}", err))
	}
	return made, problems
}

// compile gives the expression neither an environment nor modules nor further inputs.
func compile(expression string) (*gojq.Code, error) {
	query, err := gojq.Parse(expression)
	if err != nil {
		return nil, err
	}
	return gojq.Compile(query)
}

func (q *jq) Wrap(e *relay.Event) (Message, error) {
	m := Message{Key: laneKey(e), Time: e.CreatedAt}
	if e.Payload == nil && q.dropsTombstones {
		return m, nil
	}
	texts := containers{}
	input, err := q.input(e, texts)
	if err != nil {
		return Message{}, err
	}
	result, err := q.run(input)
	if err != nil {
		return Message{}, err
	}
	w := resultWriter{texts: texts}
	if err := w.write(result, 0); err != nil {
		return Message{}, err
	}
	if err := w.check(); err != nil {
		return Message{}, err
	}
	m.Value, m.ContentType = w.text, q.contentType
	return m, nil
}

const repairExpression = "mend jq.expression, or what it works on, then retry"

// input makes what the expression gets.
func (q *jq) input(e *relay.Event, texts containers) (map[string]any, error) {
	if err := checkTexts(e); err != nil {
		return nil, err
	}
	headers, err := q.headers(e, texts)
	if err != nil {
		return nil, err
	}
	input := map[string]any{
		"eventId":          e.ID,
		"eventType":        e.Type,
		"eventVersion":     e.Version,
		"schemaRef":        e.SchemaRef,
		"topic":            e.Topic,
		"partitionKey":     e.Key,
		"aggregateType":    e.AggregateType,
		"aggregateId":      e.AggregateID,
		"aggregateVersion": json.Number(strconv.FormatInt(e.AggregateVersion, 10)),
		"producer":         q.producer,
		"occurredAt":       string(jsontext.AppendTime(nil, e.CreatedAt)),
		"publishedAt":      string(jsontext.AppendTime(nil, q.now())),
		"headers":          headers,
	}
	switch {
	case e.Payload == nil:
		input["payload"] = nil
	case e.Binary:
		input["payloadBase64"] = jsontext.Unquote(jsontext.AppendBase64(nil, e.Payload))
	default:
		if err := checkJSON(e.Payload); err != nil {
			return nil, err
		}
		input["payload"] = jsontext.Parse(e.Payload, texts.add)
	}
	return input, nil
}

func (q *jq) headers(e *relay.Event, texts containers) (any, error) {
	if _, err := headersOf(e); err != nil {
		return nil, err
	}
	if len(e.Headers) == 0 {
		return map[string]any{}, nil
	}
	if err := jsontext.Check(e.Headers); err != nil {
		return nil, invalid(repairHeaders, "the headers are %v", err)
	}
	return jsontext.Parse(e.Headers, texts.add), nil
}

// run returns the only result.
func (q *jq) run(input any) (any, error) {
	ctx, cancel := context.WithTimeout(context.Background(), q.timeout)
	defer cancel()
	results := q.code.RunWithContext(ctx, input)
	result, ok := results.Next()
	if !ok {
		return nil, invalid("make it give one: without a result the event would be lost", "the jq expression gave no result")
	}
	if err, failed := result.(error); failed {
		return nil, failure(err)
	}
	switch second, ok := results.Next(); {
	case !ok:
		return result, nil
	case errors.Is(asError(second), context.DeadlineExceeded):
		return nil, ErrTimeout
	}
	return nil, invalid("make it give exactly one, for example by [ … ] around it",
		"the jq expression gave more than one result")
}

func asError(value any) error {
	err, _ := value.(error)
	return err
}

// failure words an error of gojq. Its texts end in what the expression worked on, which may be personal or secret: only what
// stands before that is shown. What the expression says itself, with error(…), is shown whole.
func failure(err error) error {
	if errors.Is(err, context.DeadlineExceeded) {
		return ErrTimeout
	}
	text := err.Error()
	var own gojq.ValueError
	if !errors.As(err, &own) {
		if at := strings.IndexAny(text, `("'[{0123456789`); at >= 0 {
			text = text[:at]
		}
		text = strings.TrimRight(text, " :")
	}
	return invalid(repairExpression, "the jq expression failed: %s", text)
}
