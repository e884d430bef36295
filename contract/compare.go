package contract

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// change is what differs between two versions of a schema.
type change struct {
	at       string // the place in the schema, as a URL of the library
	problem  string
	breaking bool
}

// comparer compares two versions of a schema. A change breaks something when
//
//   - an event that keeps the old version may not keep the new one: what is in the log, and what services that are not yet
//     deployed anew go on to write, would be quarantined; or
//   - a reader of the old version counts on something that the new one no longer promises: a property that is gone, or is no
//     longer required.
//
// What only widens (another type, another value of an enum, a looser bound) is noted: a reader may meet what it does not know.
// Where it cannot be judged (not, if, patterns), a difference counts as breaking. What is not checked (annotations, the content
// keywords) is not compared, and a $dynamicRef is taken for where it leads without its callers.
type comparer struct {
	changes []change
	seen    map[string]bool // pairs that are compared already, or are being compared
	fits    map[string]bool // pairs and whether the one can stand for the other
}

// compare returns the changes from one version to another.
func compare(old, next *jsonschema.Schema) []change {
	c := &comparer{seen: map[string]bool{}, fits: map[string]bool{}}
	c.views(viewOf(old), viewOf(next))
	return c.changes
}

func (c *comparer) breaking(at, format string, args ...any) {
	c.changes = append(c.changes, change{at, fmt.Sprintf(format, args...), true})
}

func (c *comparer) note(at, format string, args ...any) {
	c.changes = append(c.changes, change{at, fmt.Sprintf(format, args...), false})
}

func pairKey(old, next view) string { return old.key() + " " + next.key() }

// views compares everything of two views. Schemas that refer to themselves end here.
func (c *comparer) views(old, next view) {
	key := pairKey(old, next)
	if c.seen[key] {
		return
	}
	c.seen[key] = true
	switch {
	case old.never():
		if !next.never() {
			c.note(next.at(""), "is now allowed")
		}
		return
	case next.never():
		c.breaking(next.at(""), "is no longer allowed")
		return
	}
	c.types(old, next)
	c.values(old, next)
	c.bounds(old, next)
	c.texts(old, next)
	c.properties(old, next)
	c.items(old, next)
	c.alternatives(old, next, "anyOf", func(s *jsonschema.Schema) []*jsonschema.Schema { return s.AnyOf })
	c.alternatives(old, next, "oneOf", func(s *jsonschema.Schema) []*jsonschema.Schema { return s.OneOf })
	c.unjudged(old, next)
}

func (c *comparer) types(old, next view) {
	before, after := old.types(), next.types()
	gone, added := before.without(after), after.without(before)
	if _, listed := old.values(); len(gone) > 0 && !listed { // else the values tell it
		c.breaking(next.at("type"), "the type is narrower: %s was allowed", strings.Join(gone, ", "))
	}
	if _, listed := next.values(); len(added) > 0 && !listed {
		c.note(next.at("type"), "the type is wider: %s is new", strings.Join(added, ", "))
	}
}

func (c *comparer) values(old, next view) {
	before, hadSome := old.values()
	after, hasSome := next.values()
	switch {
	case !hadSome && hasSome:
		c.breaking(next.at("enum", "const"), "only certain values are allowed now")
	case hadSome && !hasSome:
		c.note(old.at("enum", "const"), "other values are allowed now")
	default:
		if gone := missing(before, after); len(gone) > 0 {
			c.breaking(next.at("enum", "const"), "values are gone: %s", strings.Join(gone, ", "))
		}
		if added := missing(after, before); len(added) > 0 {
			c.note(next.at("enum", "const"), "values are new: %s", strings.Join(added, ", "))
		}
	}
}

// missing returns the values of one set that another lacks.
func missing(from, in map[string]bool) (gone []string) {
	for _, value := range slices.Sorted(maps.Keys(from)) {
		if !in[value] {
			gone = append(gone, value)
		}
	}
	return gone
}

func (c *comparer) bounds(old, next view) {
	for _, side := range []struct {
		upper    bool
		keywords []string
	}{{false, []string{"minimum", "exclusiveMinimum"}}, {true, []string{"maximum", "exclusiveMaximum"}}} {
		c.bound(next, side.keywords, old.limit(side.upper), next.limit(side.upper))
	}
	for _, size := range sizes {
		if strings.HasSuffix(size.keyword, "Contains") && (len(old.inner(contains).parts) == 0 ||
			len(next.inner(contains).parts) == 0) {
			continue // contains itself is new or gone
		}
		c.bound(next, []string{size.keyword}, old.size(size), next.size(size))
	}
	before, after := old.multiples(), next.multiples()
	for _, m := range after {
		if !m.holdsFor(before) {
			c.breaking(next.at("multipleOf"), "must be a multiple of %s now", number(m.Rat))
		}
	}
	for _, m := range before {
		if !m.holdsFor(after) {
			c.note(next.at("multipleOf"), "need not be a multiple of %s any more", number(m.Rat))
		}
	}
	if was, is := old.unique(), next.unique(); was != is {
		if is {
			c.breaking(next.at("uniqueItems"), "items must differ now")
		} else {
			c.note(next.at("uniqueItems"), "items may be equal now")
		}
	}
}

func (c *comparer) bound(next view, keywords []string, before, after *limit) {
	switch {
	case after.tighterThan(before):
		c.breaking(next.at(keywords...), "the bound is tighter: %s, and was %s", after, before)
	case before.tighterThan(after):
		c.note(next.at(keywords...), "the bound is looser: %s, and was %s", after, before)
	}
}

// texts compares what is asked of strings.
func (c *comparer) texts(old, next view) {
	for _, keyword := range []string{"pattern", "format"} {
		before, after := old.texts(keyword), next.texts(keyword)
		for _, added := range missing(after, before) {
			c.breaking(next.at(keyword), "the %s %q is new: whether what was allowed still fits cannot be told", keyword, added)
		}
		for _, gone := range missing(before, after) {
			c.note(old.at(keyword), "the %s %q is gone", keyword, gone)
		}
	}
}

func (c *comparer) properties(old, next view) {
	before, after := old.properties(), next.properties()
	needed, needs := old.required(), next.required()
	for _, name := range slices.Sorted(maps.Keys(before)) {
		now, there := after[name]
		switch {
		case there:
			c.views(before[name], now)
		case needed[name]:
			c.breaking(before[name].at(""), "the property %q is gone, and it was required", name)
		default:
			c.breaking(before[name].at(""), "the property %q is gone", name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(after)) {
		if _, known := before[name]; known {
			continue
		}
		switch others, closed := old.others(); {
		case closed:
			c.note(after[name].at(""), "the property %q is new: readers that allow no others refuse it", name)
		case len(others.parts) > 0:
			c.views(others, after[name])
		}
	}
	for _, name := range missing(needs, needed) {
		c.breaking(next.at("required"), "the property %q is newly required", name)
	}
	for _, name := range missing(needed, needs) {
		if _, there := after[name]; there || len(before[name].parts) == 0 {
			c.breaking(next.at("required"), "the property %q is no longer required", name)
		}
	}
	c.otherProperties(old, next)
	c.dependencies(old, next)
}

// otherProperties compares what is asked of properties that have no name in the schema.
func (c *comparer) otherProperties(old, next view) {
	before, wasClosed := old.others()
	after, isClosed := next.others()
	switch {
	case isClosed && !wasClosed:
		c.breaking(next.at("additionalProperties", "unevaluatedProperties"), "other properties are no longer allowed")
	case wasClosed && !isClosed:
		c.note(old.at("additionalProperties", "unevaluatedProperties"), "other properties are allowed now")
	case !isClosed:
		c.optional("additionalProperties", next, before, after)
	}
	c.optional("propertyNames", next, old.inner(propertyNames), next.inner(propertyNames))
	patternsBefore, patternsAfter := old.patterns(), next.patterns()
	for _, pattern := range sortedKeys(patternsBefore, patternsAfter) {
		c.optional("patternProperties", next, patternsBefore[pattern], patternsAfter[pattern])
	}
}

// dependencies compares what one property asks of others.
func (c *comparer) dependencies(old, next view) {
	before, after := old.dependentRequired(), next.dependentRequired()
	for _, pair := range missing(after, before) {
		c.breaking(next.at("dependentRequired", "dependencies"), "a property newly needs another: %s", pair)
	}
	for _, pair := range missing(before, after) {
		c.note(old.at("dependentRequired", "dependencies"), "a property no longer needs another: %s", pair)
	}
	schemasBefore, schemasAfter := old.dependentSchemas(), next.dependentSchemas()
	for _, name := range sortedKeys(schemasBefore, schemasAfter) {
		c.optional("dependentSchemas", next, schemasBefore[name], schemasAfter[name])
	}
}

func sortedKeys(before, after map[string]view) []string {
	all := maps.Clone(before)
	maps.Copy(all, after)
	return slices.Sorted(maps.Keys(all))
}

func (c *comparer) items(old, next view) {
	before, after := old.prefix(), next.prefix()
	for i := range max(len(before), len(after)) {
		c.optional("prefixItems", next, old.item(i), next.item(i))
	}
	c.optional("items", next, old.item(-1), next.item(-1))
	c.optional("contains", next, old.inner(contains), next.inner(contains))
	c.optional("unevaluatedItems", next, old.inner(unevaluatedItems), next.inner(unevaluatedItems))
}

// optional compares a part that either version may lack.
func (c *comparer) optional(keyword string, next, before, after view) {
	switch {
	case before.isAnything() && after.isAnything():
	case before.isAnything():
		c.breaking(after.at(""), "%s is new", keyword)
	case after.isAnything():
		c.note(next.at(keyword), "%s is gone", keyword)
	default:
		c.views(before, after)
	}
}

// alternatives compares anyOf or oneOf: each old alternative must have a new one that it fits.
func (c *comparer) alternatives(old, next view, keyword string, of func(*jsonschema.Schema) []*jsonschema.Schema) {
	before, after := old.alternatives(of), next.alternatives(of)
	switch {
	case before == nil && after == nil:
	case before == nil:
		if !c.fitsOne(old, after) {
			c.breaking(next.at(keyword), "there are alternatives now, and what was allowed may fit none of them")
		}
	case after == nil:
		c.note(old.at(keyword), "the alternatives are gone")
		for _, alternative := range before {
			if !c.canStandFor(alternative, next) {
				c.breaking(alternative.at(""), "the alternatives are gone, and this one may no longer fit")
			}
		}
	default:
		for _, alternative := range before {
			if !c.fitsOne(alternative, after) {
				c.breaking(alternative.at(""), "this alternative is gone, or is narrower")
			}
		}
		for _, alternative := range after {
			if !slices.ContainsFunc(before, func(v view) bool { return c.canStandFor(v, alternative) }) {
				c.note(alternative.at(""), "this alternative is new, or differs")
			}
		}
	}
}

func (c *comparer) fitsOne(old view, alternatives []view) bool {
	return slices.ContainsFunc(alternatives, func(next view) bool { return c.canStandFor(old, next) })
}

// canStandFor tells whether nothing breaks from one to the other.
func (c *comparer) canStandFor(old, next view) bool {
	key := pairKey(old, next)
	if known, ok := c.fits[key]; ok {
		return known
	}
	c.fits[key] = true // while it is being compared
	trial := &comparer{seen: map[string]bool{}, fits: c.fits}
	trial.views(old, next)
	c.fits[key] = !slices.ContainsFunc(trial.changes, func(ch change) bool { return ch.breaking })
	return c.fits[key]
}

// unjudged are keywords of which nobody can tell which difference breaks something.
func (c *comparer) unjudged(old, next view) {
	for _, part := range []struct {
		keyword string
		of      func(*jsonschema.Schema) *jsonschema.Schema
	}{
		{"not", func(s *jsonschema.Schema) *jsonschema.Schema { return s.Not }},
		{"if", func(s *jsonschema.Schema) *jsonschema.Schema { return s.If }},
		{"then", func(s *jsonschema.Schema) *jsonschema.Schema { return s.Then }},
		{"else", func(s *jsonschema.Schema) *jsonschema.Schema { return s.Else }},
	} {
		before, after := old.inner(part.of), next.inner(part.of)
		switch {
		case len(before.parts) == 0 && len(after.parts) == 0:
		case len(before.parts) == 0:
			c.breaking(next.at(part.keyword), "%s is new: whether what was allowed still is cannot be told", part.keyword)
		case len(after.parts) == 0:
			c.breaking(old.at(part.keyword), "%s is gone: whether what was allowed still is cannot be told", part.keyword)
		case !c.canStandFor(before, after) || !c.canStandFor(after, before):
			c.breaking(next.at(part.keyword), "%s has changed: whether what was allowed still is cannot be told", part.keyword)
		}
	}
}
