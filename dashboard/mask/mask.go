// Package mask hides fields of payloads and headers from those who look at events. It works on what is shown; what is stored and
// delivered stays as it is.
package mask

import (
	"bytes"
	"encoding/json"
	"io"
	"slices"
	"strconv"
	"strings"
)

// Text stands where a value was. Its JSON is a string.
const Text = "(masked)"

// Mask knows the names whose values are hidden. The zero Mask and nil hide nothing.
type Mask struct{ names map[string]bool }

// New returns a mask for fields of these names, wherever they stand in a payload, and for headers of these names. Case does not
// matter. What a field holds is hidden as a whole, whatever it is.
func New(names []string) *Mask {
	m := &Mask{names: map[string]bool{}}
	for _, name := range names {
		m.names[strings.ToLower(name)] = true
	}
	return m
}

// Any tells whether something is hidden at all.
func (m *Mask) Any() bool { return m != nil && len(m.names) > 0 }

// JSON returns a document with the values hidden; everything else stays byte for byte. It returns the document itself when there
// is nothing to hide, and Text alone when it cannot be read as JSON: what is not understood is not shown.
func (m *Mask) JSON(document json.RawMessage) json.RawMessage {
	if !m.Any() || len(document) == 0 {
		return document
	}
	found, err := m.find(document)
	if err != nil {
		return json.RawMessage(strconv.Quote(Text))
	}
	if len(found) == 0 {
		return document
	}
	var shown []byte
	at := 0
	for _, v := range found {
		shown = append(append(shown, document[at:v.from]...), strconv.Quote(Text)...)
		at = v.to
	}
	return append(shown, document[at:]...)
}

// Bytes does the same for a payload that may be anything. What is no JSON is not shown: nobody can tell what is in it.
func (m *Mask) Bytes(payload []byte) []byte {
	switch {
	case !m.Any() || len(payload) == 0:
		return payload
	case json.Valid(payload):
		return m.JSON(payload)
	}
	return []byte(Text)
}

// Holds returns the paths of the fields that hold Text, as a masked document shows them. A repair that is made from one must not
// be stored: it would put Text in the place of the values.
func (m *Mask) Holds(document json.RawMessage) (paths []string) {
	if !m.Any() {
		return nil
	}
	if string(bytes.TrimSpace(document)) == strconv.Quote(Text) {
		return []string{""}
	}
	found, err := m.find(document)
	if err != nil {
		return nil // whoever stores it refuses what is no JSON
	}
	for _, v := range found {
		if string(document[v.from:v.to]) == strconv.Quote(Text) {
			paths = append(paths, v.path)
		}
	}
	return paths
}

// HoldsBytes does the same for what Bytes has shown.
func (m *Mask) HoldsBytes(payload []byte) (paths []string) {
	if m.Any() && string(bytes.TrimSpace(payload)) == Text {
		return []string{""}
	}
	return m.Holds(payload)
}

// Header returns the value to show of a header.
func (m *Mask) Header(name, value string) string {
	if m.Any() && m.names[strings.ToLower(name)] {
		return Text
	}
	return value
}

// value is where the value of a hidden field stands.
type value struct {
	from, to int
	path     string // a JSON pointer
}

// find goes over a document once. It does not look into what is hidden.
func (m *Mask) find(document json.RawMessage) (found []value, err error) {
	d := json.NewDecoder(bytes.NewReader(document))
	d.UseNumber() // one beyond a float64 is JSON as well
	var within []level
	for {
		token, err := d.Token()
		if err == io.EOF && len(within) == 0 {
			return found, nil
		}
		if err != nil {
			return nil, err
		}
		top := len(within) - 1
		if key, ok := token.(string); ok && top >= 0 && within[top].wantsKey() {
			within[top].key, within[top].hasKey = key, true
			if m.names[strings.ToLower(key)] {
				var hidden json.RawMessage
				if err := d.Decode(&hidden); err != nil {
					return nil, err
				}
				to := int(d.InputOffset())
				found = append(found, value{to - len(hidden), to, pointer(within)})
				within[top].next()
			}
			continue
		}
		switch token {
		case json.Delim('{'), json.Delim('['):
			within = append(within, level{object: token == json.Delim('{')})
			continue
		case json.Delim('}'), json.Delim(']'):
			within = within[:top]
		}
		if len(within) > 0 { // a value has ended
			within[len(within)-1].next()
		}
	}
}

// level is an object or array that the look is in, and where in it.
type level struct {
	object, hasKey bool
	key            string
	index          int
}

func (l *level) wantsKey() bool { return l.object && !l.hasKey }

func (l *level) next() {
	l.index++
	l.hasKey = false
}

func pointer(within []level) string {
	escape := strings.NewReplacer("~", "~0", "/", "~1")
	var path strings.Builder
	for _, l := range within {
		path.WriteByte('/')
		if l.object {
			path.WriteString(escape.Replace(l.key))
		} else {
			path.WriteString(strconv.Itoa(l.index))
		}
	}
	return path.String()
}

// With returns a mask that hides further names as well.
func (m *Mask) With(names ...string) *Mask {
	all := slices.Clone(names)
	if m != nil {
		for name := range m.names {
			all = append(all, name)
		}
	}
	return New(all)
}
