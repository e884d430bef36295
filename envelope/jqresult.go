package envelope

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"math/big"
	"reflect"
	"slices"
	"strconv"

	"github.com/pillarbox-dev/pillarbox/envelope/internal/jsontext"
)

// containers knows the text of every object and array of an event by where it lies in memory. gojq hands on what it is given and
// never changes it: what it changes it copies. So an object of a result that is one of these still says what its text says.
//
// The values are kept here as well: were one collected while the expression runs, another could get its place.
type containers map[place]original

type place struct {
	at  uintptr
	len int // a part of an array may begin at the same place
}

type original struct {
	value any
	text  []byte
}

func (c containers) add(value any, text []byte) {
	if p, ok := placeOf(value); ok {
		c[p] = original{value, text}
	}
}

// placeOf returns nothing for an empty array: those all lie in one place.
func placeOf(value any) (place, bool) {
	switch v := value.(type) {
	case map[string]any:
		return place{reflect.ValueOf(v).Pointer(), -1}, true
	case []any:
		return place{reflect.ValueOf(v).Pointer(), len(v)}, len(v) > 0
	}
	return place{}, false
}

// resultWriter writes what a jq expression gave.
type resultWriter struct {
	texts containers
	text  []byte
}

func (w *resultWriter) write(value any, depth int) error {
	if depth > jsontext.MaxDepth {
		return invalid(repairExpression, "the result of the jq expression is nested deeper than %d", jsontext.MaxDepth)
	}
	if len(w.text) > MaxJQResult {
		return errTooLong
	}
	if p, ok := placeOf(value); ok {
		if untouched, ok := w.texts[p]; ok {
			w.text = append(w.text, untouched.text...)
			return nil
		}
	}
	switch v := value.(type) {
	case nil:
		w.text = append(w.text, "null"...)
	case bool:
		w.text = strconv.AppendBool(w.text, v)
	case string:
		w.text = jsontext.AppendString(w.text, v)
	case json.Number:
		w.text = append(w.text, v...)
	case int:
		w.text = strconv.AppendInt(w.text, int64(v), 10)
	case *big.Int:
		w.text = v.Append(w.text, 10)
	case float64:
		return w.float(v)
	case []any:
		return w.array(v, depth)
	case map[string]any:
		return w.object(v, depth)
	default:
		return invalid(repairExpression, "the result of the jq expression has a value that is not JSON")
	}
	return nil
}

// check looks at the whole: gojq takes numbers that JSON does not have.
func (w *resultWriter) check() error {
	if len(w.text) > MaxJQResult {
		return errTooLong
	}
	if err := jsontext.Check(w.text); err != nil {
		return invalid(repairExpression, "the result of the jq expression is %v", err)
	}
	return nil
}

var errTooLong = invalid(repairExpression, "the result of the jq expression has more than %d bytes", MaxJQResult)

func (w *resultWriter) float(f float64) error {
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return invalid(repairExpression, "the result of the jq expression has a number that JSON cannot say: %v", f)
	}
	text, err := json.Marshal(f)
	if err != nil {
		return fmt.Errorf("write a number: %w", err)
	}
	w.text = append(w.text, text...)
	return nil
}

func (w *resultWriter) array(items []any, depth int) error {
	w.text = append(w.text, '[')
	for i, item := range items {
		if i > 0 {
			w.text = append(w.text, ',')
		}
		if err := w.write(item, depth+1); err != nil {
			return err
		}
	}
	w.text = append(w.text, ']')
	return nil
}

func (w *resultWriter) object(members map[string]any, depth int) error {
	w.text = append(w.text, '{')
	for i, name := range slices.Sorted(maps.Keys(members)) {
		if i > 0 {
			w.text = append(w.text, ',')
		}
		w.text = append(jsontext.AppendString(w.text, name), ':')
		if err := w.write(members[name], depth+1); err != nil {
			return err
		}
	}
	w.text = append(w.text, '}')
	return nil
}
