package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// A decoder fills the structs of this package from YAML nodes. It does not stop at a problem: it notes it with its place and
// goes on, so that all of them come at once.
//
// The keys are the yaml tags. The tag `rule` holds what else is asked of a key, divided by commas:
//
//	required  the key must be there
//	zero      0 is a value of its own; without it a number, size or duration must be above 0
//
// The tag `oneof` holds the words that a string may be, `schemes` how an address may begin, and `hint` what to do when a key
// that is required is missing.
type decoder struct {
	file     string
	lookup   func(string) (string, bool)
	problems Problems
	// places are where the value of each key stands, by its path (destinations.suppliers.timeout), for the checks that follow.
	places map[string]place
}

type place struct{ line, column int }

// A nodeDecoder is a type that reads more than one form of YAML.
type nodeDecoder interface {
	decodeNode(d *decoder, n *yaml.Node, path string, tag reflect.StructTag)
}

// note remembers where a key's value stands; for what has keys of its own that is the key itself.
func (d *decoder) note(e entry, path string) {
	at := e.value
	if at.Kind != yaml.ScalarNode {
		at = e.key
	}
	d.places[path] = place{at.Line, at.Column}
}

func (d *decoder) problem(n *yaml.Node, path, text, hint string) {
	d.problemAt(place{n.Line, n.Column}, path, text, hint)
}

func (d *decoder) problemAt(at place, path, text, hint string) {
	d.problems = append(d.problems, Problem{File: d.file, Line: at.line, Column: at.column, Text: text, Hint: hint, path: path})
}

// document returns the one document of a file, or nil after it has noted why there is none.
func (d *decoder) document(data []byte) *yaml.Node {
	bad := func(line int, text, hint string) *yaml.Node {
		d.problems = append(d.problems, Problem{File: d.file, Line: line, Column: min(line, 1), Text: text, Hint: hint})
		return nil
	}
	if len(data) > maxFile {
		return bad(0, fmt.Sprintf("has %d bytes, which is more than %v", len(data), Size(maxFile)), "is it the right file?")
	}
	var document, second yaml.Node
	reader := yaml.NewDecoder(bytes.NewReader(data))
	err := reader.Decode(&document)
	if errors.Is(err, io.EOF) {
		return bad(0, "is empty", "'pillarbox init' writes one that explains every key")
	}
	if err == nil {
		if err = reader.Decode(&second); err == nil {
			return bad(second.Line, "a second document begins here", "keep to one, without a line of ---")
		}
	}
	if !errors.Is(err, io.EOF) {
		line, text := syntaxError(err)
		return bad(line, "is not valid YAML: "+text, syntaxHint(data, line))
	}
	return document.Content[0]
}

// syntaxError divides "yaml: line 3: text".
func syntaxError(err error) (line int, text string) {
	text = strings.TrimPrefix(err.Error(), "yaml: ")
	if rest, ok := strings.CutPrefix(text, "line "); ok {
		if number, after, ok := strings.Cut(rest, ": "); ok {
			if n, err := strconv.Atoi(number); err == nil {
				return n, after
			}
		}
	}
	return 0, text
}

// syntaxHint knows the mistakes that people make. The line that the parser tells may be one off, or missing (0).
func syntaxHint(data []byte, line int) string {
	lines := strings.Split(string(data), "\n")
	first, last := max(0, line-2), min(len(lines), line+1)
	if line == 0 {
		last = len(lines)
	}
	for i := first; i < last; i++ {
		switch text := strings.TrimLeft(lines[i], " "); {
		case strings.HasPrefix(text, "\t"):
			return fmt.Sprintf("indent line %d with spaces, not with a tab", i+1)
		case strings.Contains(text, "{") && strings.Contains(text, "${"):
			return fmt.Sprintf("within { }, put ${NAME} in quotes (line %d)", i+1)
		}
	}
	return "check the indentation and the quotes around it"
}

// value decodes a node into a variable, whatever its type.
func (d *decoder) value(n *yaml.Node, path string, into reflect.Value, tag reflect.StructTag) {
	switch {
	case n.Kind == yaml.AliasNode || n.Anchor != "":
		d.problem(n, path, path+" uses an anchor or an alias, which are not supported", "write the value out")
		return
	case isNull(n) && isSection(into.Type()):
		n = &yaml.Node{Kind: yaml.MappingNode, Line: n.Line, Column: n.Column} // all its keys are commented out
	case isNull(n):
		d.problem(n, path, path+" has no value", "give it one, or take the key out to get the default")
		return
	case n.Style&yaml.TaggedStyle != 0:
		d.problem(n, path, fmt.Sprintf("%s has the tag %s, which is not supported", path, shorten(n.Tag)), "write the value without it")
		return
	}
	if custom, ok := into.Addr().Interface().(nodeDecoder); ok {
		custom.decodeNode(d, n, path, tag)
		return
	}
	switch into.Kind() {
	case reflect.Struct:
		d.structure(n, path, into)
	case reflect.Map:
		d.dictionary(n, path, into)
	case reflect.Slice:
		d.list(n, path, into)
	case reflect.Pointer:
		into.Set(reflect.New(into.Type().Elem()))
		d.value(n, path, into.Elem(), tag)
	case reflect.String:
		d.text(n, path, into, tag.Get("oneof"))
	default:
		d.plain(n, path, into, tag.Get("rule"))
	}
}

func isNull(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.Tag == "!!null" }

// isSection tells the types that are a mapping with known keys.
func isSection(t reflect.Type) bool {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return t.Kind() == reflect.Struct && len(fieldsOf(t)) > 0
}

// structure decodes a mapping whose keys are known.
func (d *decoder) structure(n *yaml.Node, path string, into reflect.Value) {
	fields := fieldsOf(into.Type())
	entries, ok := d.entries(n, path)
	if !ok {
		return
	}
	given := map[string]bool{}
	for _, entry := range entries {
		name := entry.key.Value
		field, known := fields[name]
		if !known {
			d.problem(entry.key, path, fmt.Sprintf("unknown key %q%s", shorten(name), inside(path)),
				DidYouMean(name, slices.Sorted(maps.Keys(fields))))
			continue
		}
		given[name] = true
		d.note(entry, join(path, name))
		d.value(entry.value, join(path, name), into.FieldByIndex(field.Index), field.Tag)
	}
	for name, field := range fields {
		if !given[name] && hasWord(field.Tag.Get("rule"), "required") {
			d.problemAt(d.places[path], path, join(path, name)+" is missing", field.Tag.Get("hint"))
		}
	}
}

// dictionary decodes a mapping whose keys are the user's names.
func (d *decoder) dictionary(n *yaml.Node, path string, into reflect.Value) {
	entries, ok := d.entries(n, path)
	if !ok {
		return
	}
	into.Set(reflect.MakeMap(into.Type()))
	for _, entry := range entries {
		value := reflect.New(into.Type().Elem()).Elem()
		d.note(entry, join(path, entry.key.Value))
		d.value(entry.value, join(path, entry.key.Value), value, "")
		into.SetMapIndex(reflect.ValueOf(entry.key.Value), value)
	}
}

func (d *decoder) list(n *yaml.Node, path string, into reflect.Value) {
	if n.Kind != yaml.SequenceNode {
		d.wrongType(n, path, "a list")
		return
	}
	if len(n.Content) == 0 {
		d.problem(n, path, path+" is an empty list", "name something, or take the key out to get the default")
	}
	into.Set(reflect.MakeSlice(into.Type(), len(n.Content), len(n.Content)))
	for i, item := range n.Content {
		d.places[fmt.Sprintf("%s[%d]", path, i)] = place{item.Line, item.Column}
		d.value(item, fmt.Sprintf("%s[%d]", path, i), into.Index(i), "")
	}
}

type entry struct{ key, value *yaml.Node }

// entries returns the pairs of a mapping, each key once. A second one of the same name is a problem, not an override.
func (d *decoder) entries(n *yaml.Node, path string) ([]entry, bool) {
	if n.Kind != yaml.MappingNode {
		d.wrongType(n, path, "a mapping of keys")
		return nil, false
	}
	var entries []entry
	first := map[string]int{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		switch line, seen := first[key.Value]; {
		case key.Kind != yaml.ScalarNode || key.Tag == "!!merge" || key.Anchor != "":
			d.problem(key, path, "a key"+inside(path)+" is not plain text",
				"anchors, merges and keys with a structure are not supported")
		case strings.Contains(key.Value, "${"):
			d.problem(key, path, fmt.Sprintf("the key %q%s holds a variable", shorten(key.Value), inside(path)),
				"variables are filled in in values only")
		case seen:
			d.problem(key, path, fmt.Sprintf("the key %q%s stands here twice", shorten(key.Value), inside(path)),
				fmt.Sprintf("the first is in line %d: take one of them out", line))
		default:
			first[key.Value] = key.Line
			entries = append(entries, entry{key, value})
		}
	}
	return entries, true
}

// scalar returns the text of a scalar with the environment filled in.
func (d *decoder) scalar(n *yaml.Node, path, want string) (expanded, bool) {
	if n.Kind != yaml.ScalarNode {
		d.wrongType(n, path, want)
		return expanded{}, false
	}
	e, err := expand(n.Value, d.lookup)
	if err != nil {
		d.problem(n, path, path+": "+err.Error(), "")
		return expanded{}, false
	}
	return e, true
}

func (d *decoder) text(n *yaml.Node, path string, into reflect.Value, oneof string) {
	e, ok := d.scalar(n, path, "text")
	if !ok {
		return
	}
	words := strings.Split(oneof, ",")
	switch {
	case n.Tag != "!!str":
		d.wrongType(n, path, "text")
	case e.text == "":
		d.problem(n, path, path+" is empty"+e.origin(), "give it a value, or take the key out to get the default")
	case strings.ContainsFunc(e.text, isControl):
		d.problem(n, path, path+" holds a line break or another control character"+e.origin(), "write it in one line")
	case oneof != "" && !slices.Contains(words, e.text):
		d.problem(n, path, fmt.Sprintf("%s is %s", path, e.quote()), "it can be "+strings.Join(words, " or "))
	default:
		into.SetString(e.text)
	}
}

func isControl(r rune) bool { return r < ' ' || r == 0x7f }

// plain decodes what has a type of its own: true and false, numbers, durations, sizes. Text that holds a variable may be
// quoted, because YAML asks for it inside { }.
func (d *decoder) plain(n *yaml.Node, path string, into reflect.Value, rule string) {
	want := wantOf(into)
	e, ok := d.scalar(n, path, want)
	if !ok {
		return
	}
	if isQuoted(n) && len(e.names) == 0 && !isUnit(into) {
		d.problem(n, path, fmt.Sprintf("%s wants %s, not text", path, want), "take the quotes away")
		return
	}
	if err := setPlain(into, e.text, rule); err != nil {
		d.problem(n, path, fmt.Sprintf("%s is %s", path, e.quote()), "it "+err.Error())
	}
}

// setPlain parses text into a variable by its type.
func setPlain(into reflect.Value, text, rule string) error {
	var sign int
	switch into.Interface().(type) {
	case Duration:
		v, err := ParseDuration(text)
		if err != nil {
			return err
		}
		into.SetInt(int64(v))
		sign = compareZero(float64(v))
	case Size:
		v, err := parseSize(text)
		if err != nil {
			return err
		}
		into.SetInt(int64(v))
		sign = compareZero(float64(v))
	case bool:
		if text != "true" && text != "false" {
			return errors.New("wants true or false")
		}
		into.SetBool(text == "true")
		return nil
	case int:
		v, err := strconv.ParseInt(text, 10, 32)
		if err != nil {
			return errors.New("wants a whole number, at most 2147483647")
		}
		into.SetInt(v)
		sign = compareZero(float64(v))
	case float64:
		v, err := strconv.ParseFloat(text, 64)
		if err != nil || math.IsNaN(v) || math.IsInf(v, 0) {
			return errors.New("wants a number such as 0.5")
		}
		into.SetFloat(v)
		sign = compareZero(v)
	default:
		panic(fmt.Sprintf("config: no way to decode a %v", into.Type()))
	}
	switch {
	case sign < 0:
		return errors.New("must not be negative")
	case sign == 0 && !hasWord(rule, "zero"):
		return errors.New("must be more than 0; take the key out to get the default")
	}
	return nil
}

func compareZero(v float64) int {
	switch {
	case v < 0:
		return -1
	case v > 0:
		return 1
	}
	return 0
}

func wantOf(into reflect.Value) string {
	switch into.Interface().(type) {
	case Duration:
		return "a duration such as 15s"
	case Size:
		return "a size such as 64MiB"
	case bool:
		return "true or false"
	}
	return "a number"
}

// isUnit tells the types that are text to YAML anyway.
func isUnit(into reflect.Value) bool {
	switch into.Interface().(type) {
	case Duration, Size:
		return true
	}
	return false
}

func isQuoted(n *yaml.Node) bool {
	return n.Style&(yaml.SingleQuotedStyle|yaml.DoubleQuotedStyle|yaml.LiteralStyle|yaml.FoldedStyle) != 0
}

func (d *decoder) wrongType(n *yaml.Node, path, want string) {
	is, hint := "a mapping of keys", ""
	switch {
	case n.Kind == yaml.SequenceNode:
		is = "a list"
	case n.Kind == yaml.ScalarNode && n.Tag == "!!str":
		is = "text"
	case n.Kind == yaml.ScalarNode && n.Tag == "!!bool":
		is = "true or false"
	case n.Kind == yaml.ScalarNode:
		is = "a number or a date"
	}
	if n.Kind == yaml.ScalarNode && want == "text" {
		hint = "put it in quotes"
	}
	if n.Kind == yaml.ScalarNode && want == "a list" {
		hint = fmt.Sprintf("write it in brackets: [%q]", shorten(n.Value))
	}
	if path == "" {
		path = "the file"
	}
	d.problem(n, path, fmt.Sprintf("%s wants %s, this is %s", path, want, is), hint)
}

// quote shows a value that was refused, but never one out of the environment, which may be a secret in the wrong place.
func (e expanded) quote() string {
	if len(e.names) > 0 {
		return "what " + strings.Join(e.names, " and ") + " in the environment says"
	}
	return strconv.Quote(shorten(e.text))
}

func (e expanded) origin() string {
	if len(e.names) > 0 {
		return " (from " + strings.Join(e.names, " and ") + " in the environment)"
	}
	return ""
}

// fieldsOf returns the fields of a struct by their keys.
func fieldsOf(t reflect.Type) map[string]reflect.StructField {
	fields := map[string]reflect.StructField{}
	for _, field := range reflect.VisibleFields(t) {
		if key, _, _ := strings.Cut(field.Tag.Get("yaml"), ","); key != "" && key != "-" {
			fields[key] = field
		}
	}
	return fields
}

func hasWord(list, word string) bool { return slices.Contains(strings.Split(list, ","), word) }

func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

func inside(path string) string {
	if path == "" {
		return ""
	}
	return " in " + path
}
