package contract

import (
	"slices"
	"strings"
	"testing"
)

// changesBetween returns what a change of a schema breaks, and what is noted, as "pointer: problem".
func changesBetween(t *testing.T, old, next string) (breaking, notes []string) {
	t.Helper()
	r := CheckFolder(folderOf(map[string]string{"s.json": next}), folderOf(map[string]string{"s.json": old}), "")
	if r.Compared != 1 {
		t.Fatalf("nothing was compared: %v", r.Problems)
	}
	for _, p := range r.Problems {
		breaking = append(breaking, p.Pointer+": "+p.Problem)
	}
	for _, p := range r.Notes {
		notes = append(notes, p.Pointer+": "+p.Problem)
	}
	return breaking, notes
}

func TestCompare(t *testing.T) {
	const person = `{"type":"object","required":["id"],` +
		`"properties":{"id":{"type":"string"},"name":{"type":"string"},"age":{"type":"integer"}}}`
	for _, tt := range []struct {
		name     string
		old, new string
		breaking []string
		notes    []string
	}{
		{name: "nothing", old: person, new: person},
		{name: "words", old: person, new: strings.Replace(person, `{"type":"object"`,
			`{"title":"x","description":"y","examples":[1],"default":{},"$comment":"z","type":"object"`, 1)},
		{name: "drafts", old: `{` + draft07 +
			`,"definitions":{"a":{"type":"string"}},"properties":{"x":{"$ref":"#/definitions/a"}}}`,
			new: `{` + draft202012 + `,"$defs":{"b":{"type":"string"}},"properties":{"x":{"$ref":"#/$defs/b"}}}`},

		{name: "property gone", old: person,
			new:      `{"type":"object","required":["id"],"properties":{"id":{"type":"string"},"name":{"type":"string"}}}`,
			breaking: []string{`/properties/age: the property "age" is gone`}},
		{name: "required property gone", old: person,
			new:      `{"type":"object","properties":{"name":{"type":"string"},"age":{"type":"integer"}}}`,
			breaking: []string{`/properties/id: the property "id" is gone, and it was required`}},
		{name: "newly required", old: person, new: strings.Replace(person, `["id"]`, `["id","name"]`, 1),
			breaking: []string{`/required: the property "name" is newly required`}},
		{name: "new and required", old: person, new: `{"allOf":[` + person + `,{"required":["x"],"properties":{"x":{}}}]}`,
			breaking: []string{`/allOf/0/required: the property "x" is newly required`}},
		{name: "no longer required", old: person, new: strings.Replace(person, `"required":["id"],`, "", 1),
			breaking: []string{`: the property "id" is no longer required`}},
		{name: "required without a name, and no longer", old: `{"required":["x"]}`, new: `{}`,
			breaking: []string{`: the property "x" is no longer required`}},
		{name: "new and optional", old: person, new: strings.Replace(person, `"age"`, `"email":{"type":"string"},"age"`, 1)},
		{name: "new in a closed one", old: `{"additionalProperties":false}`,
			new:   `{"additionalProperties":false,"properties":{"x":{}}}`,
			notes: []string{`/properties/x: the property "x" is new: readers that allow no others refuse it`}},
		{name: "new, narrower than others were", old: `{"additionalProperties":{"type":["string","null"]}}`,
			new:      `{"additionalProperties":{"type":["string","null"]},"properties":{"x":{"type":"string"}}}`,
			breaking: []string{"/properties/x/type: the type is narrower: null was allowed"}},
		{name: "closed", old: person, new: strings.Replace(person, `{"type":"object"`,
			`{"additionalProperties":false,"type":"object"`, 1),
			breaking: []string{"/additionalProperties: other properties are no longer allowed"}},
		{name: "opened", old: `{"unevaluatedProperties":false}`, new: `{}`,
			notes: []string{"/unevaluatedProperties: other properties are allowed now"}},
		{name: "others limited", old: `{}`, new: `{"additionalProperties":{"type":"string"}}`,
			breaking: []string{"/additionalProperties: additionalProperties is new"}},
		{name: "others no longer limited", old: `{"additionalProperties":{"type":"string"}}`,
			new:   `{"additionalProperties":true}`,
			notes: []string{"/additionalProperties: additionalProperties is gone"}},

		{name: "type narrower", old: `{"properties":{"a":{"type":["string","null"]}}}`,
			new:      `{"properties":{"a":{"type":"string"}}}`,
			breaking: []string{"/properties/a/type: the type is narrower: null was allowed"}},
		{name: "type wider", old: `{"properties":{"a":{"type":"string"}}}`,
			new:   `{"properties":{"a":{"type":["string","null"]}}}`,
			notes: []string{"/properties/a/type: the type is wider: null is new"}},
		{name: "type changed", old: `{"type":"integer"}`, new: `{"type":"string"}`,
			breaking: []string{"/type: the type is narrower: integer was allowed"},
			notes:    []string{"/type: the type is wider: string is new"}},
		{name: "number to integer", old: `{"type":"number"}`, new: `{"type":"integer"}`,
			breaking: []string{"/type: the type is narrower: number was allowed"}},
		{name: "integer to number", old: `{"type":"integer"}`, new: `{"type":"number"}`,
			notes: []string{"/type: the type is wider: number is new"}},
		{name: "any type to one", old: `{}`, new: `{"type":"object"}`,
			breaking: []string{"/type: the type is narrower: null, boolean, number, string, array was allowed"}},
		{name: "order of types", old: `{"type":["null","string"]}`, new: `{"type":["string","null"]}`},

		{name: "enum value gone", old: `{"enum":["a","b",1.0]}`, new: `{"enum":["a",1]}`,
			breaking: []string{`/enum: values are gone: "b"`}},
		{name: "enum value new", old: `{"enum":["a"]}`, new: `{"enum":["b","a"]}`,
			notes: []string{`/enum: values are new: "b"`}},
		{name: "enum new", old: `{"type":"string"}`, new: `{"type":"string","enum":["a"]}`,
			breaking: []string{"/enum: only certain values are allowed now"}},
		{name: "enum gone", old: `{"type":"string","enum":["a"]}`, new: `{"type":"string"}`,
			notes: []string{"/enum: other values are allowed now"}},
		{name: "const to enum", old: `{"const":"a"}`, new: `{"enum":["a","b"]}`, notes: []string{`/enum: values are new: "b"`}},
		{name: "const changed", old: `{"const":{"a":1}}`, new: `{"const":{"a":2}}`,
			breaking: []string{`/const: values are gone: {"a":1}`}, notes: []string{`/const: values are new: {"a":2}`}},

		{name: "bounds tighter",
			old: `{"minimum":0,"maximum":10.5,"minLength":0,"maxLength":9,"minItems":1,"maxItems":2,"minProperties":1,"maxProperties":2}`,
			new: `{"exclusiveMinimum":0,"maximum":10.49,"minLength":1,"maxLength":8,"minItems":2,"maxItems":1,"minProperties":2,"maxProperties":1}`,
			breaking: []string{"/exclusiveMinimum: the bound is tighter: more than 0, and was at least 0",
				"/maxItems: the bound is tighter: at most 1, and was at most 2",
				"/maxLength: the bound is tighter: at most 8, and was at most 9",
				"/maxProperties: the bound is tighter: at most 1, and was at most 2",
				"/maximum: the bound is tighter: at most 10.49, and was at most 10.5",
				"/minItems: the bound is tighter: at least 2, and was at least 1",
				"/minLength: the bound is tighter: at least 1, and was none",
				"/minProperties: the bound is tighter: at least 2, and was at least 1"}},
		{name: "bounds looser", old: `{"minimum":9007199254740993,"exclusiveMaximum":5,"maxLength":9}`,
			new: `{"minimum":9007199254740992,"maximum":5}`,
			notes: []string{": the bound is looser: none, and was at most 9",
				"/maximum: the bound is looser: at most 5, and was less than 5",
				"/minimum: the bound is looser: at least 9007199254740992, and was at least 9007199254740993"}},
		{name: "multiples", old: `{"multipleOf":0.5}`, new: `{"multipleOf":1}`,
			breaking: []string{"/multipleOf: must be a multiple of 1 now"}},
		{name: "finer multiples", old: `{"multipleOf":1}`, new: `{"multipleOf":0.5}`,
			notes: []string{"/multipleOf: need not be a multiple of 1 any more"}},
		{name: "unique", old: `{}`, new: `{"uniqueItems":true}`, breaking: []string{"/uniqueItems: items must differ now"}},
		{name: "no longer unique", old: `{"uniqueItems":true}`, new: `{}`, notes: []string{": items may be equal now"}},
		{name: "pattern and format", old: `{"pattern":"^a","format":"date"}`, new: `{"pattern":"^b"}`,
			breaking: []string{`/pattern: the pattern "^b" is new: whether what was allowed still fits cannot be told`},
			notes:    []string{`/format: the format "date" is gone`, `/pattern: the pattern "^a" is gone`}},

		{name: "items", old: `{"items":{"type":"number"}}`, new: `{"items":{"type":"integer"}}`,
			breaking: []string{"/items/type: the type is narrower: number was allowed"}},
		{name: "items limited", old: `{}`, new: `{"items":{"type":"string"}}`, breaking: []string{"/items: items is new"}},
		{name: "tuple, of the old draft", old: `{` + draft07 + `,"items":[{"type":"string"},{}],"additionalItems":false}`,
			new:      `{"prefixItems":[{"type":"string"},{"type":"null"}],"items":false}`,
			breaking: []string{"/prefixItems/1: prefixItems is new"}},
		{name: "tuple longer", old: `{"prefixItems":[{"type":"string"}],"items":false}`,
			new:   `{"prefixItems":[{"type":"string"},{}],"items":false}`,
			notes: []string{": prefixItems is gone"}},
		{name: "contains", old: `{}`, new: `{"contains":{"const":1},"minContains":2}`,
			breaking: []string{"/contains: contains is new"}},
		{name: "contains more", old: `{"contains":{"const":1}}`, new: `{"contains":{"const":1},"minContains":2}`,
			breaking: []string{"/minContains: the bound is tighter: at least 2, and was at least 1"}},
		{name: "names", old: `{"propertyNames":{"maxLength":9}}`, new: `{"propertyNames":{"maxLength":8}}`,
			breaking: []string{"/propertyNames/maxLength: the bound is tighter: at most 8, and was at most 9"}},
		{name: "pattern properties", old: `{"patternProperties":{"^x":{"type":"string"}}}`,
			new: `{"patternProperties":{"^x":{"type":"null"},"^y":{"type":"null"}}}`,
			breaking: []string{"/patternProperties/^x/type: the type is narrower: string was allowed",
				"/patternProperties/^y: patternProperties is new"},
			notes: []string{"/patternProperties/^x/type: the type is wider: null is new"}},
		{name: "dependencies", old: `{"dependentRequired":{"a":["b"]}}`,
			new: `{"dependentRequired":{"a":["c"]},"dependentSchemas":{"d":{"required":["e"]}}}`,
			breaking: []string{`/dependentRequired: a property newly needs another: "a" needs "c"`,
				"/dependentSchemas/d: dependentSchemas is new"},
			notes: []string{`/dependentRequired: a property no longer needs another: "a" needs "b"`}},
		{name: "dependencies of the old draft", old: `{` + draft07 + `,"dependencies":{"a":["b"],"d":{"required":["e"]}}}`,
			new: `{"dependentRequired":{"a":["b"]},"dependentSchemas":{"d":{"required":["e"]}}}`},

		{name: "nullable by anyOf", old: `{"properties":{"a":{"type":"string"}}}`,
			new:   `{"properties":{"a":{"anyOf":[{"type":"string"},{"type":"null"}]}}}`,
			notes: []string{"/properties/a: the type is wider: null is new"}},
		{name: "anyOf to types", old: `{"anyOf":[{"type":"string"},{"type":"null"}]}`, new: `{"type":["null","string"]}`,
			notes: []string{"/anyOf: the alternatives are gone"}},
		{name: "alternative gone", old: `{"oneOf":[{"type":"string"},{"type":"null"}]}`, new: `{"oneOf":[{"type":"string"}]}`,
			breaking: []string{"/oneOf/1: this alternative is gone, or is narrower",
				": the type is narrower: null was allowed"}},
		{name: "alternative narrower", old: `{"anyOf":[{"maxLength":9},{"type":"null"}]}`,
			new:      `{"anyOf":[{"type":"null"},{"maxLength":8}]}`,
			breaking: []string{"/anyOf/0: this alternative is gone, or is narrower"},
			notes:    []string{"/anyOf/1: this alternative is new, or differs"}},
		{name: "alternative new", old: `{"anyOf":[{"type":"string"}]}`, new: `{"anyOf":[{"type":"null"},{"type":"string"}]}`,
			notes: []string{": the type is wider: null is new", "/anyOf/0: this alternative is new, or differs"}},
		{name: "alternatives in another order", old: `{"anyOf":[{"type":"string"},{"type":"null"}]}`,
			new: `{"anyOf":[{"type":"null"},{"type":"string"}]}`},
		{name: "alternatives that fit less", old: `{"type":"object","properties":{"a":{}}}`,
			new:      `{"type":"object","properties":{"a":{}},"anyOf":[{"required":["a"]}]}`,
			breaking: []string{"/anyOf: there are alternatives now, and what was allowed may fit none of them"}},

		{name: "not", old: `{"not":{"const":1}}`, new: `{"not":{"const":2}}`,
			breaking: []string{"/not: not has changed: whether what was allowed still is cannot be told"}},
		{name: "not, wider", old: `{"not":{"maximum":1}}`, new: `{"not":{"maximum":2}}`,
			breaking: []string{"/not: not has changed: whether what was allowed still is cannot be told"}},
		{name: "not, the same", old: `{"not":{"enum":[1,2]}}`, new: `{"not":{"enum":[2,1]}}`},
		{name: "if", old: `{}`, new: `{"if":{"const":1},"then":{"type":"number"}}`,
			breaking: []string{"/if: if is new: whether what was allowed still is cannot be told",
				"/then: then is new: whether what was allowed still is cannot be told"}},
		{name: "else gone", old: `{"if":{"const":1},"else":{"type":"string"}}`, new: `{"if":{"const":1}}`,
			breaking: []string{"/else: else is gone: whether what was allowed still is cannot be told"}},
		{name: "nothing any more", old: `{"properties":{"a":{}}}`, new: `{"properties":{"a":false}}`,
			breaking: []string{"/properties/a: is no longer allowed"}},
		{name: "allowed now", old: `{"properties":{"a":false}}`, new: `{"properties":{"a":{}}}`,
			notes: []string{"/properties/a: is now allowed"}},

		{name: "recursive", old: `{"properties":{"next":{"$ref":"#"},"v":{"type":"number"}}}`,
			new:      `{"properties":{"next":{"$ref":"#"},"v":{"type":"integer"}}}`,
			breaking: []string{"/properties/v/type: the type is narrower: number was allowed"}},
		{name: "recursive alternatives",
			old: `{"$defs":{"t":{"anyOf":[{"type":"null"},{"items":{"$ref":"#/$defs/t"}}]}},"$ref":"#/$defs/t"}`,
			new: `{"$defs":{"t":{"anyOf":[{"type":"null"},{"items":{"$ref":"#/$defs/t"}}]}},"$ref":"#/$defs/t"}`},
		{name: "an alternative of itself", old: `{"anyOf":[{"$ref":"#"},{"type":"string"}]}`,
			new: `{"anyOf":[{"$ref":"#"},{"type":"string"}]}`},
		{name: "alternatives of each other",
			old: `{"$ref":"#/$defs/a","$defs":{"a":{"anyOf":[{"$ref":"#/$defs/b"},{"type":"null"}]},"b":{"oneOf":[{"$ref":"#/$defs/a"},{"type":"string"}]}}}`,
			new: `{"$ref":"#/$defs/a","$defs":{"a":{"anyOf":[{"$ref":"#/$defs/b"},{"type":"null"}]},"b":{"oneOf":[{"$ref":"#/$defs/a"},{"type":"string"}]}}}`},
		{name: "taken apart", old: person,
			new: `{"$ref":"#/$defs/p","$defs":{"p":{"type":"object","allOf":[{"required":["id"]},` +
				`{"properties":{"id":{"type":"string"},"name":{"$ref":"#/$defs/s"}}}],"properties":{"age":{"type":"integer"}}},"s":{"type":"string"}}}`},
		{name: "deep inside", old: `{"properties":{"a":{"items":{"properties":{"b":{"enum":[1,2]}}}}}}`,
			new:      `{"properties":{"a":{"items":{"properties":{"b":{"enum":[1]}}}}}}`,
			breaking: []string{"/properties/a/items/properties/b/enum: values are gone: 2"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			breaking, notes := changesBetween(t, tt.old, tt.new)
			slices.Sort(tt.breaking)
			slices.Sort(tt.notes)
			slices.Sort(breaking)
			slices.Sort(notes)
			if !slices.Equal(breaking, tt.breaking) {
				t.Errorf("breaking %q\nwant     %q", breaking, tt.breaking)
			}
			if !slices.Equal(notes, tt.notes) {
				t.Errorf("notes %q\nwant  %q", notes, tt.notes)
			}
		})
	}
}
