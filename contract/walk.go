package contract

import (
	"net/url"
	"strconv"
)

// Where schemas stand within a schema, in both drafts.
var (
	schemaKeywords = []string{
		"additionalItems", "additionalProperties", "contains", "contentSchema", "else", "if", "items", "not", "propertyNames",
		"then",
		"unevaluatedItems", "unevaluatedProperties",
	}
	schemaListKeywords = []string{"allOf", "anyOf", "items", "oneOf", "prefixItems"}
	schemaMapKeywords  = []string{"$defs", "definitions", "dependencies", "dependentSchemas", "patternProperties", "properties"}
)

// part is a schema within a document.
type part struct {
	at       string // its JSON Pointer
	refersTo string // the URL of its $ref or $dynamicRef; "": it has none
}

// partsOf returns the document's schema and all within it, in no order.
func partsOf(d *document) []part {
	at, err := url.Parse(urlOf(d.file))
	if err != nil {
		return nil
	}
	w := walker{}
	w.walk(d.value, "", at)
	return w.parts
}

type walker struct{ parts []part }

func (w *walker) walk(value any, at string, base *url.URL) {
	members, is := value.(map[string]any)
	if !is {
		return
	}
	if id, given := members["$id"].(string); given {
		if inner, err := base.Parse(id); err == nil {
			base = inner
		}
	}
	p := part{at: at}
	for _, keyword := range []string{"$ref", "$dynamicRef"} {
		if ref, given := members[keyword].(string); given {
			if target, err := base.Parse(ref); err == nil {
				p.refersTo = target.String()
			}
		}
	}
	w.parts = append(w.parts, p)
	for _, keyword := range schemaKeywords {
		w.walk(members[keyword], at+"/"+keyword, base)
	}
	for _, keyword := range schemaListKeywords {
		list, _ := members[keyword].([]any)
		for i, inner := range list {
			w.walk(inner, at+"/"+keyword+"/"+strconv.Itoa(i), base)
		}
	}
	for _, keyword := range schemaMapKeywords {
		inner, _ := members[keyword].(map[string]any)
		for name := range inner {
			w.walk(inner[name], at+"/"+keyword+pointer(name), base)
		}
	}
}
