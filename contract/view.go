package contract

import (
	"encoding/json"
	"fmt"
	"math/big"
	"slices"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// view is a schema together with all that holds for the same value: what it refers to and what it takes in by allOf. A view
// without parts allows everything.
type view struct{ parts []*jsonschema.Schema }

func viewOf(schemas ...*jsonschema.Schema) view {
	v := view{}
	for _, s := range schemas {
		v.add(s)
	}
	return v
}

func (v *view) add(s *jsonschema.Schema) {
	if s == nil || slices.Contains(v.parts, s) {
		return
	}
	v.parts = append(v.parts, s)
	v.add(s.Ref)
	v.add(s.RecursiveRef)
	if s.DynamicRef != nil {
		v.add(s.DynamicRef.Ref)
	}
	for _, inner := range s.AllOf {
		v.add(inner)
	}
}

func (v view) key() string {
	var b strings.Builder
	for _, s := range v.parts {
		fmt.Fprintf(&b, "%p", s)
	}
	return b.String()
}

// at returns the place of the first of some keywords; "" is the schema itself.
func (v view) at(keywords ...string) string {
	for _, s := range v.parts {
		for _, keyword := range keywords {
			if has(s, keyword) {
				return s.Location + "/" + keyword
			}
		}
	}
	if len(v.parts) == 0 {
		return ""
	}
	return v.parts[0].Location
}

// has tells whether a schema has a keyword that reports point at.
func has(s *jsonschema.Schema, keyword string) bool {
	if given, is := keywords[keyword]; is {
		return given(s)
	}
	return slices.ContainsFunc(sizes, func(size size) bool { return size.keyword == keyword && size.of(s) != nil })
}

var keywords = map[string]func(*jsonschema.Schema) bool{
	"type":                  func(s *jsonschema.Schema) bool { return s.Types != nil },
	"enum":                  func(s *jsonschema.Schema) bool { return s.Enum != nil },
	"const":                 func(s *jsonschema.Schema) bool { return s.Const != nil },
	"minimum":               func(s *jsonschema.Schema) bool { return s.Minimum != nil },
	"exclusiveMinimum":      func(s *jsonschema.Schema) bool { return s.ExclusiveMinimum != nil },
	"maximum":               func(s *jsonschema.Schema) bool { return s.Maximum != nil },
	"exclusiveMaximum":      func(s *jsonschema.Schema) bool { return s.ExclusiveMaximum != nil },
	"multipleOf":            func(s *jsonschema.Schema) bool { return s.MultipleOf != nil },
	"uniqueItems":           func(s *jsonschema.Schema) bool { return s.UniqueItems },
	"pattern":               func(s *jsonschema.Schema) bool { return s.Pattern != nil },
	"format":                func(s *jsonschema.Schema) bool { return s.Format != nil },
	"required":              func(s *jsonschema.Schema) bool { return len(s.Required) > 0 },
	"additionalProperties":  func(s *jsonschema.Schema) bool { return s.AdditionalProperties != nil },
	"unevaluatedProperties": func(s *jsonschema.Schema) bool { return s.UnevaluatedProperties != nil },
	"dependentRequired":     func(s *jsonschema.Schema) bool { return s.DependentRequired != nil },
	"dependencies":          func(s *jsonschema.Schema) bool { return s.Dependencies != nil },
	"anyOf":                 func(s *jsonschema.Schema) bool { return s.AnyOf != nil },
	"oneOf":                 func(s *jsonschema.Schema) bool { return s.OneOf != nil },
	"not":                   func(s *jsonschema.Schema) bool { return s.Not != nil },
	"if":                    func(s *jsonschema.Schema) bool { return s.If != nil },
	"then":                  func(s *jsonschema.Schema) bool { return s.Then != nil },
	"else":                  func(s *jsonschema.Schema) bool { return s.Else != nil },
}

func (v view) never() bool {
	return slices.ContainsFunc(v.parts, func(s *jsonschema.Schema) bool { return s.Bool != nil && !*s.Bool })
}

func (v view) isAnything() bool {
	return !slices.ContainsFunc(v.parts, func(s *jsonschema.Schema) bool { return s.Bool == nil || !*s.Bool })
}

// inner gathers a part that schemas may have.
func (v view) inner(of func(*jsonschema.Schema) *jsonschema.Schema) view {
	gathered := view{}
	for _, s := range v.parts {
		gathered.add(of(s))
	}
	return gathered
}

func propertyNames(s *jsonschema.Schema) *jsonschema.Schema    { return s.PropertyNames }
func contains(s *jsonschema.Schema) *jsonschema.Schema         { return s.Contains }
func unevaluatedItems(s *jsonschema.Schema) *jsonschema.Schema { return s.UnevaluatedItems }

// typeSet are the types that are allowed; "integer" is left out where "number" is there.
type typeSet []string

var allTypes = typeSet{"null", "boolean", "number", "string", "array", "object"}

func (t typeSet) allows(name string) bool {
	return slices.Contains(t, name) || name == "integer" && slices.Contains(t, "number")
}

func (t typeSet) without(other typeSet) (rest []string) {
	for _, name := range t {
		if !other.allows(name) {
			rest = append(rest, name)
		}
	}
	return rest
}

func (t typeSet) intersect(other typeSet) typeSet {
	both := typeSet{}
	for _, name := range append(typeSet{"integer"}, allTypes...) {
		if t.allows(name) && other.allows(name) {
			both = append(both, name)
		}
	}
	if slices.Contains(both, "number") {
		both = slices.DeleteFunc(both, func(name string) bool { return name == "integer" })
	}
	return both
}

// types are those that every part allows. Alternatives allow what one of them allows.
func (v view) types() typeSet { return v.typesWithin(nil) }

// typesWithin leaves out what is being looked at already: a schema may be an alternative of itself.
func (v view) typesWithin(outer []*jsonschema.Schema) typeSet {
	outer = slices.Concat(outer, v.parts)
	allowed := allTypes
	for _, s := range v.parts {
		if s.Types != nil {
			allowed = allowed.intersect(s.Types.ToStrings())
		}
		if s.Enum != nil {
			allowed = allowed.intersect(typesOf(s.Enum.Values...))
		}
		if s.Const != nil {
			allowed = allowed.intersect(typesOf(*s.Const))
		}
		for _, alternatives := range [][]*jsonschema.Schema{s.AnyOf, s.OneOf} {
			if alternatives == nil {
				continue
			}
			either := typeSet{}
			for _, alternative := range alternatives {
				inner := viewOf(alternative)
				inner.parts = slices.DeleteFunc(inner.parts, func(p *jsonschema.Schema) bool {
					return slices.Contains(outer,
						p)
				})
				either = append(either, inner.typesWithin(outer)...)
			}
			allowed = allowed.intersect(either)
		}
	}
	return allowed
}

func typesOf(values ...any) (types typeSet) {
	for _, value := range values {
		switch v := value.(type) {
		case nil:
			types = append(types, "null")
		case bool:
			types = append(types, "boolean")
		case json.Number:
			name := "number"
			if r, ok := new(big.Rat).SetString(v.String()); ok && r.IsInt() {
				name = "integer"
			}
			types = append(types, name)
		case string:
			types = append(types, "string")
		case []any:
			types = append(types, "array")
		case map[string]any:
			types = append(types, "object")
		}
	}
	return types
}

// values are those of enum and const, as canonical JSON.
func (v view) values() (values map[string]bool, limited bool) {
	for _, s := range v.parts {
		var allowed []any
		switch {
		case s.Const != nil:
			allowed = []any{*s.Const}
		case s.Enum != nil:
			allowed = s.Enum.Values
		default:
			continue
		}
		mine := map[string]bool{}
		for _, value := range allowed {
			if text := canonical(value); !limited || values[text] {
				mine[text] = true
			}
		}
		values, limited = mine, true
	}
	return values, limited
}

// canonical writes equal values alike: 1.0 is 1.
func canonical(value any) string {
	text, err := json.Marshal(normal(value))
	if err != nil {
		return fmt.Sprint(value)
	}
	return string(text)
}

func normal(value any) any {
	switch v := value.(type) {
	case json.Number:
		if r, ok := new(big.Rat).SetString(v.String()); ok {
			return json.Number(number(r))
		}
	case []any:
		items := make([]any, len(v))
		for i := range v {
			items[i] = normal(v[i])
		}
		return items
	case map[string]any:
		members := make(map[string]any, len(v))
		for name := range v {
			members[name] = normal(v[name])
		}
		return members
	}
	return value
}

// limit is a bound; nil is none.
type limit struct {
	*big.Rat
	exclusive bool
	upper     bool
}

func (l *limit) tighterThan(other *limit) bool {
	if l == nil || other == nil {
		return l != nil
	}
	order := l.Cmp(other.Rat)
	if l.upper {
		order = -order
	}
	return order > 0 || order == 0 && l.exclusive && !other.exclusive
}

func (l *limit) String() string {
	switch {
	case l == nil:
		return "none"
	case l.exclusive && l.upper:
		return "less than " + number(l.Rat)
	case l.exclusive:
		return "more than " + number(l.Rat)
	case l.upper:
		return "at most " + number(l.Rat)
	}
	return "at least " + number(l.Rat)
}

// limit returns the tightest bound of numbers.
func (v view) limit(upper bool) (tightest *limit) {
	for _, s := range v.parts {
		bounds := []*limit{{s.Minimum, false, false}, {s.ExclusiveMinimum, true, false}}
		if upper {
			bounds = []*limit{{s.Maximum, false, true}, {s.ExclusiveMaximum, true, true}}
		}
		for _, b := range bounds {
			if b.Rat != nil && b.tighterThan(tightest) {
				tightest = b
			}
		}
	}
	return tightest
}

// size is a bound of whole numbers.
type size struct {
	keyword string
	upper   bool
	of      func(*jsonschema.Schema) *int
}

var sizes = []size{
	{"minLength", false, func(s *jsonschema.Schema) *int { return s.MinLength }},
	{"maxLength", true, func(s *jsonschema.Schema) *int { return s.MaxLength }},
	{"minItems", false, func(s *jsonschema.Schema) *int { return s.MinItems }},
	{"maxItems", true, func(s *jsonschema.Schema) *int { return s.MaxItems }},
	{"minProperties", false, func(s *jsonschema.Schema) *int { return s.MinProperties }},
	{"maxProperties", true, func(s *jsonschema.Schema) *int { return s.MaxProperties }},
	{"minContains", false, func(s *jsonschema.Schema) *int { return s.MinContains }},
	{"maxContains", true, func(s *jsonschema.Schema) *int { return s.MaxContains }},
}

// size returns the tightest. A least size of 0 is none, but for minContains, which is 1 when it is not there.
func (v view) size(of size) (tightest *limit) {
	for _, s := range v.parts {
		n := of.of(s)
		if of.keyword == "minContains" && n == nil && s.Contains != nil {
			one := 1
			n = &one
		}
		if n == nil || !of.upper && *n == 0 {
			continue
		}
		if b := (&limit{new(big.Rat).SetInt64(int64(*n)), false, of.upper}); b.tighterThan(tightest) {
			tightest = b
		}
	}
	return tightest
}

type multiple struct{ *big.Rat }

// holdsFor tells whether multiples of one of the others are multiples of this.
func (m multiple) holdsFor(others []multiple) bool {
	return slices.ContainsFunc(others, func(other multiple) bool { return new(big.Rat).Quo(other.Rat, m.Rat).IsInt() })
}

func (v view) multiples() (all []multiple) {
	for _, s := range v.parts {
		if s.MultipleOf != nil {
			all = append(all, multiple{s.MultipleOf})
		}
	}
	return all
}

func (v view) unique() bool {
	return slices.ContainsFunc(v.parts, func(s *jsonschema.Schema) bool { return s.UniqueItems })
}

// texts are the patterns or formats.
func (v view) texts(keyword string) map[string]bool {
	all := map[string]bool{}
	for _, s := range v.parts {
		switch {
		case keyword == "pattern" && s.Pattern != nil:
			all[s.Pattern.String()] = true
		case keyword == "format" && s.Format != nil:
			all[s.Format.Name] = true
		}
	}
	return all
}

func (v view) properties() map[string]view {
	all := map[string]view{}
	for _, s := range v.parts {
		addViews(all, s.Properties)
	}
	return all
}

func addViews(all map[string]view, schemas map[string]*jsonschema.Schema) {
	for name, schema := range schemas {
		one := all[name]
		one.add(schema)
		all[name] = one
	}
}

func (v view) required() map[string]bool {
	all := map[string]bool{}
	for _, s := range v.parts {
		for _, name := range s.Required {
			all[name] = true
		}
	}
	return all
}

// others is what holds for properties without a name in the schema; closed: there may be none.
func (v view) others() (others view, closed bool) {
	for _, s := range v.parts {
		if allowed, is := s.AdditionalProperties.(bool); is && !allowed {
			closed = true
		}
		if schema, is := s.AdditionalProperties.(*jsonschema.Schema); is {
			others.add(schema)
		}
		others.add(s.UnevaluatedProperties)
	}
	return others, closed || others.never()
}

func (v view) patterns() map[string]view {
	all := map[string]view{}
	for _, s := range v.parts {
		for pattern, schema := range s.PatternProperties {
			addViews(all, map[string]*jsonschema.Schema{pattern.String(): schema})
		}
	}
	return all
}

// dependentRequired are pairs of properties, the first of which needs the second.
func (v view) dependentRequired() map[string]bool {
	all := map[string]bool{}
	add := func(name string, needs []string) {
		for _, need := range needs {
			all[fmt.Sprintf("%q needs %q", name, need)] = true
		}
	}
	for _, s := range v.parts {
		for name, needs := range s.DependentRequired {
			add(name, needs)
		}
		for name, dependency := range s.Dependencies {
			if needs, is := dependency.([]string); is {
				add(name, needs)
			}
		}
	}
	return all
}

func (v view) dependentSchemas() map[string]view {
	all := map[string]view{}
	for _, s := range v.parts {
		addViews(all, s.DependentSchemas)
		for name, dependency := range s.Dependencies {
			if schema, is := dependency.(*jsonschema.Schema); is {
				addViews(all, map[string]*jsonschema.Schema{name: schema})
			}
		}
	}
	return all
}

// prefix is the longest list of schemas for the first items.
func (v view) prefix() (longest []*jsonschema.Schema) {
	for _, s := range v.parts {
		if first := firstItems(s); len(first) > len(longest) {
			longest = first
		}
	}
	return longest
}

// item is what holds for the item of that number; -1 is one after every prefix.
func (v view) item(i int) view {
	gathered := view{}
	for _, s := range v.parts {
		if first := firstItems(s); i >= 0 && i < len(first) {
			gathered.add(first[i])
			continue
		}
		gathered.add(s.Items2020)
		if schema, is := s.Items.(*jsonschema.Schema); is {
			gathered.add(schema)
		}
		switch additional := s.AdditionalItems.(type) {
		case *jsonschema.Schema:
			gathered.add(additional)
		case bool:
			gathered.add(&jsonschema.Schema{Bool: &additional, Location: s.Location + "/additionalItems"})
		}
	}
	return gathered
}

func firstItems(s *jsonschema.Schema) []*jsonschema.Schema {
	if list, is := s.Items.([]*jsonschema.Schema); is {
		return list
	}
	return s.PrefixItems
}

func (v view) alternatives(of func(*jsonschema.Schema) []*jsonschema.Schema) (all []view) {
	for _, s := range v.parts {
		for _, alternative := range of(s) {
			all = append(all, viewOf(alternative))
		}
	}
	return all
}
