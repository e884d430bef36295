package contract

import (
	"errors"
	"fmt"
	"strings"

	"github.com/pillarbox-dev/pillarbox/relay"
	"github.com/santhosh-tekuri/jsonschema/v6"
)

// Codes of breaches.
const (
	CodeInvalid = "SCHEMA_INVALID" // the payload breaks its contract
	CodeUnknown = "SCHEMA_UNKNOWN" // there is no contract of the schema_ref
	CodeMissing = "SCHEMA_MISSING" // the event has no schema_ref
)

// Breach says that an event does not keep its contract. Another try would end the same way.
type Breach struct {
	// Code is one of the codes above.
	Code string
	// SchemaRef is the event's.
	SchemaRef string
	// Fields are what breaks the contract, ordered by their pointers; none when there is no contract.
	Fields []Field
}

// maxFields is how many fields an error names.
const maxFields = 10

// Error names the first fields and what to do.
func (b *Breach) Error() string {
	switch b.Code {
	case CodeUnknown:
		return fmt.Sprintf("there is no contract %q: add the schema, or repair or discard the event", b.SchemaRef)
	case CodeMissing:
		return "the event has no schema_ref: discard it and enqueue it again with one, or let such events pass"
	}
	var text strings.Builder
	fmt.Fprintf(&text, "breaks the contract %s: ", b.SchemaRef)
	for i, field := range b.Fields[:min(maxFields, len(b.Fields))] {
		if i > 0 {
			text.WriteString("; ")
		}
		text.WriteString(field.String())
	}
	if more := len(b.Fields) - maxFields; more > 0 {
		fmt.Fprintf(&text, "; and %d more", more)
	}
	return text.String()
}

// Check returns nil, or the *Breach of an event.
func (c *Contracts) Check(e *relay.Event) error {
	if b := c.check(e.SchemaRef, e.Payload, e.Binary); b != nil {
		return b
	}
	return nil
}

// Judge is Check for the relay: nil lets the event pass, and an outcome rejects it.
func (c *Contracts) Judge(e *relay.Event) *relay.Outcome {
	b := c.check(e.SchemaRef, e.Payload, e.Binary)
	if b == nil {
		return nil
	}
	return &relay.Outcome{Kind: relay.Reject, Code: b.Code, Message: b.Error()}
}

func (c *Contracts) check(ref string, payload []byte, binary bool) *Breach {
	if payload == nil {
		return nil // a tombstone
	}
	if ref == "" {
		return c.without(c.missing, CodeMissing, ref)
	}
	schema := c.schemas[ref]
	if schema == nil {
		return c.without(c.unknown, CodeUnknown, ref)
	}
	fields := fieldsAgainst(schema, payload, binary)
	if len(fields) == 0 {
		return nil
	}
	return &Breach{CodeInvalid, ref, fields}
}

func (c *Contracts) without(action Action, code, ref string) *Breach {
	if action == Pass {
		return nil
	}
	return &Breach{Code: code, SchemaRef: ref}
}

// fieldsAgainst returns the fields that break the schema.
func fieldsAgainst(schema *jsonschema.Schema, payload []byte, binary bool) []Field {
	if binary {
		return []Field{{"", "is not JSON, and the contract is a JSON Schema"}}
	}
	value, fault := decode(payload)
	if fault != nil {
		return []Field{*fault}
	}
	err := schema.Validate(value)
	var broken *jsonschema.ValidationError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &broken):
		return fieldsOf(broken, value)
	}
	return []Field{{"", "cannot be checked: " + err.Error()}}
}
