package contract

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math/big"
	"slices"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"
)

// fieldsOf says which fields of a value break a schema, in order, and how. The words show what the schema wants, never what the
// value says.
func fieldsOf(err *jsonschema.ValidationError, value any) []Field {
	var fields []Field
	collect(err, value, &fields)
	slices.SortFunc(fields, func(a, b Field) int {
		return cmp.Or(strings.Compare(a.Pointer, b.Pointer), strings.Compare(a.Problem, b.Problem))
	})
	return slices.Compact(fields)
}

func collect(err *jsonschema.ValidationError, value any, fields *[]Field) {
	at := pointer(err.InstanceLocation...)
	add := func(pointer, format string, args ...any) {
		*fields = append(*fields, Field{pointer, fmt.Sprintf(format, args...)})
	}
	switch k := err.ErrorKind.(type) {
	case *kind.Schema, *kind.Group, *kind.Reference, *kind.AllOf:
		for _, cause := range err.Causes {
			collect(cause, value, fields)
		}
	case *kind.AnyOf:
		alternatives(err, value, fields)
	case *kind.OneOf:
		if len(k.Subschemas) > 0 {
			add(at, "fits more than one of the alternatives (oneOf)")
			return
		}
		alternatives(err, value, fields)
	case *kind.Required:
		for _, name := range k.Missing {
			add(at+pointer(name), "is missing")
		}
	case *kind.Dependency:
		for _, name := range k.Missing {
			add(at+pointer(name), "is missing, and %s needs it", k.Prop)
		}
	case *kind.DependentRequired:
		for _, name := range k.Missing {
			add(at+pointer(name), "is missing, and %s needs it", k.Prop)
		}
	case *kind.AdditionalProperties:
		for _, name := range k.Properties {
			add(at+pointer(name), "is not allowed")
		}
	case *kind.PropertyNames:
		add(ownerOf(err.InstanceLocation, k.Property, value)+pointer(k.Property), "has a name that is not allowed")
	default:
		add(at, "%s", words(k))
	}
}

// words are those for errors about the place itself.
func words(k jsonschema.ErrorKind) string {
	switch k := k.(type) {
	case *kind.Type:
		return fmt.Sprintf("must be %s, and is %s", strings.Join(k.Want, " or "), k.Got)
	case *kind.Enum:
		return "must be one of " + listed(k.Want)
	case *kind.Const:
		return "must be " + listed([]any{k.Want})
	case *kind.Format:
		return "is not a valid " + k.Want
	case *kind.Pattern:
		return fmt.Sprintf("must match the pattern %q", k.Want)
	case *kind.MinLength:
		return fmt.Sprintf("must have at least %d characters, and has %d", k.Want, k.Got)
	case *kind.MaxLength:
		return fmt.Sprintf("must have at most %d characters, and has %d", k.Want, k.Got)
	case *kind.MinItems:
		return fmt.Sprintf("must have at least %d items, and has %d", k.Want, k.Got)
	case *kind.MaxItems:
		return fmt.Sprintf("must have at most %d items, and has %d", k.Want, k.Got)
	case *kind.MinProperties:
		return fmt.Sprintf("must have at least %d members, and has %d", k.Want, k.Got)
	case *kind.MaxProperties:
		return fmt.Sprintf("must have at most %d members, and has %d", k.Want, k.Got)
	case *kind.AdditionalItems:
		return fmt.Sprintf("has %d items more than are allowed", k.Count)
	case *kind.UniqueItems:
		return fmt.Sprintf("has equal items, at %d and %d", k.Duplicates[0], k.Duplicates[1])
	case *kind.Contains:
		return "has no item that it must contain"
	case *kind.MinContains:
		return fmt.Sprintf("must contain at least %d of certain items, and has %d", k.Want, len(k.Got))
	case *kind.MaxContains:
		return fmt.Sprintf("must contain at most %d of certain items, and has %d", k.Want, len(k.Got))
	case *kind.Minimum:
		return "must be at least " + number(k.Want)
	case *kind.Maximum:
		return "must be at most " + number(k.Want)
	case *kind.ExclusiveMinimum:
		return "must be more than " + number(k.Want)
	case *kind.ExclusiveMaximum:
		return "must be less than " + number(k.Want)
	case *kind.MultipleOf:
		return "must be a multiple of " + number(k.Want)
	case *kind.Not:
		return "is what it must not be (not)"
	case *kind.FalseSchema:
		return "is not allowed"
	case *kind.RefCycle:
		return "cannot be checked: the schema refers to itself without end"
	}
	return "breaks " + strings.Join(k.KeywordPath(), "/")
}

// listed shows values of a schema, as many as fit on a line.
func listed(values []any) string {
	const most = 200
	var b strings.Builder
	for i, value := range values {
		text, err := json.Marshal(value)
		if err != nil || b.Len()+len(text) > most {
			return strings.TrimSuffix(b.String(), ", ") + " …"
		}
		b.Write(text)
		if i < len(values)-1 {
			b.WriteString(", ")
		}
	}
	return b.String()
}

// number writes a bound of a schema as a decimal.
func number(r *big.Rat) string {
	if r.IsInt() {
		return r.Num().String()
	}
	digits, exact := r.FloatPrec()
	if !exact {
		return r.String()
	}
	return r.FloatString(digits)
}

// alternatives is about a value that fits none of several schemas. When all but one of them are plainly meant for something
// else, what is told is how it misses that one; else just that it fits none.
func alternatives(err *jsonschema.ValidationError, value any, fields *[]Field) {
	var likely []*jsonschema.ValidationError
	lowest := unlikelyType + 1
	for _, cause := range err.Causes {
		switch score := unlikely(cause, len(err.InstanceLocation)); {
		case score < lowest:
			lowest, likely = score, []*jsonschema.ValidationError{cause}
		case score == lowest:
			likely = append(likely, cause)
		}
	}
	if len(likely) == 1 && lowest < unlikelyType {
		collect(likely[0], value, fields)
		return
	}
	*fields = append(*fields, Field{pointer(err.InstanceLocation...), "fits none of the alternatives (" +
		err.ErrorKind.KeywordPath()[0] + ")"})
}

// How plain it is that an alternative is meant for something else: it has another type, or another constant in one of its
// members.
const (
	likelyMeant = iota
	unlikelyConstant
	unlikelyType
)

func unlikely(err *jsonschema.ValidationError, depth int) (score int) {
	here := len(err.InstanceLocation) - depth
	switch err.ErrorKind.(type) {
	case *kind.Type, *kind.FalseSchema:
		if here == 0 {
			return unlikelyType
		}
	case *kind.Const, *kind.Enum:
		if here <= 1 {
			return unlikelyConstant
		}
	case *kind.Group, *kind.Reference, *kind.AllOf:
		for _, cause := range err.Causes {
			score = max(score, unlikely(cause, depth))
		}
	}
	return score
}

// ownerOf returns the JSON Pointer of the object that has a property with a bad name. The library may name a neighbour of it,
// because the list that it keeps the place in is shared; then the object is looked for by the name.
func ownerOf(location []string, property string, value any) string {
	inner := value
	for _, token := range location {
		members, _ := inner.(map[string]any)
		inner = members[token]
	}
	if members, _ := inner.(map[string]any); members != nil {
		if _, has := members[property]; has {
			return pointer(location...)
		}
	}
	owner, _ := search(value, property, "")
	return owner
}

// search finds the first object that has a property.
func search(value any, property, at string) (string, bool) {
	switch v := value.(type) {
	case []any:
		for i, item := range v {
			if found, ok := search(item, property, fmt.Sprintf("%s/%d", at, i)); ok {
				return found, true
			}
		}
	case map[string]any:
		if _, has := v[property]; has {
			return at, true
		}
		for name, member := range v {
			if found, ok := search(member, property, at+pointer(name)); ok {
				return found, true
			}
		}
	}
	return "", false
}
