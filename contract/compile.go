package contract

import (
	"cmp"
	"errors"
	"fmt"
	"net/url"
	"path"
	"slices"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// base is where the folder seems to be for references; it exists nowhere.
const base = "contract://folder/"

func urlOf(file string) string { return base + (&url.URL{Path: file}).EscapedPath() }

// errOutside is why a reference is not followed.
var errOutside = errors.New("it is outside of the folder, and nothing is loaded from elsewhere: put the schema into the folder, " +
	"with that $id")

// errBroken is about a file whose own problem is told.
var errBroken = errors.New("it cannot be used")

// compiler compiles the documents of a folder.
type compiler struct {
	*jsonschema.Compiler
	documents map[string]*document // by file
	ids       []identity
	files     map[string]string             // by URL, of the files and of their $ids
	schemas   map[string]*jsonschema.Schema // by file; what could be compiled
	broken    map[string]bool               // by file
}

// identity is a document's $id.
type identity struct {
	url  string
	file string
}

// compile compiles all schemas, and returns all problems of the folder in order.
func (f *folder) compile(draft Draft) (*compiler, []Problem) {
	c := &compiler{Compiler: jsonschema.NewCompiler(), documents: map[string]*document{}, files: map[string]string{},
		schemas: map[string]*jsonschema.Schema{}, broken: f.broken}
	c.UseLoader(c)
	c.AssertFormat()
	c.DefaultDraft(map[Draft]*jsonschema.Draft{Draft202012: jsonschema.Draft2020, Draft07: jsonschema.Draft7}[draft])
	problems := slices.Clone(f.problems)
	for _, d := range f.documents {
		if refused := c.add(d); len(refused) > 0 {
			problems = append(problems, refused...)
			c.broken[d.file] = true
		}
	}
	var failed error
	for _, d := range f.documents {
		if c.broken[d.file] {
			continue
		}
		schema, err := c.Compile(urlOf(d.file))
		if err != nil {
			failed = err
			problems = append(problems, c.explain(d, err)...)
			continue
		}
		c.schemas[d.file] = schema
	}
	if failed != nil && len(problems) == 0 { // not to be taken for a success
		problems = append(problems, Problem{Problem: strings.ReplaceAll(failed.Error(), base, ""), Hint: "correct the schema"})
	}
	return c, sorted(problems)
}

func sorted(problems []Problem) []Problem {
	slices.SortStableFunc(problems, func(a, b Problem) int {
		return cmp.Or(strings.Compare(a.File, b.File), strings.Compare(a.Pointer, b.Pointer),
			strings.Compare(a.Problem, b.Problem))
	})
	return slices.Compact(problems)
}

// add makes a document known under its file's name and under its $id.
func (c *compiler) add(d *document) []Problem {
	members, _ := d.value.(map[string]any)
	if draft, given := members["$schema"].(string); given && !isSupported(draft) {
		return []Problem{{d.file, "/$schema", fmt.Sprintf("the draft %q is not supported", draft),
			"use https://json-schema.org/draft/2020-12/schema or http://json-schema.org/draft-07/schema#"}}
	}
	file := urlOf(d.file)
	urls := []string{file}
	if id, given := members["$id"].(string); given {
		at, err := url.Parse(file)
		if err == nil {
			at, err = at.Parse(id)
		}
		if err != nil {
			return []Problem{{d.file, "/$id", "is no URI reference", "write an absolute URI, or take it out"}}
		}
		if at.Fragment = ""; at.String() != file {
			urls = append(urls, at.String())
		}
	}
	for _, u := range urls {
		if other, taken := c.files[u]; taken {
			return []Problem{{d.file, "/$id", "is the same as that of " + other, "give each schema an $id of its own"}}
		}
		if err := c.AddResource(u, d.value); err != nil {
			return []Problem{{d.file, "/$id", err.Error(), "give the schema an $id of its own"}}
		}
		c.files[u] = d.file
	}
	if len(urls) > 1 {
		c.ids = append(c.ids, identity{urls[1], d.file})
	}
	c.documents[d.file] = d
	return nil
}

// isSupported tells the drafts that the package promises from those that the library could read besides.
func isSupported(draft string) bool {
	draft = strings.TrimSuffix(draft, "#")
	if rest, is := strings.CutPrefix(draft, "http://"); is {
		draft = "https://" + rest
	}
	return draft == "https://json-schema.org/draft/2020-12/schema" || draft == "https://json-schema.org/draft-07/schema"
}

// Load implements jsonschema.URLLoader for what is not known by its URL: a file that is named relative to the $id of another. The
// file has the same place relative to the other's file.
func (c *compiler) Load(wanted string) (any, error) {
	if strings.HasPrefix(wanted, base) {
		file, _ := c.place(wanted)
		if c.broken[file] {
			return nil, errBroken
		}
		return nil, fmt.Errorf("there is no file %s in the folder", file)
	}
	for _, id := range c.ids {
		place := id.url[:strings.LastIndexByte(id.url, '/')+1]
		rest, below := strings.CutPrefix(wanted, place)
		if !below || place == "" || strings.HasSuffix(place, "://") {
			continue
		}
		if unescaped, err := url.PathUnescape(rest); err == nil {
			rest = unescaped
		}
		if d := c.documents[path.Join(path.Dir(id.file), rest)]; d != nil {
			c.files[wanted] = d.file
			return d.value, nil
		}
	}
	return nil, errOutside
}

// explain finds all that keeps a document from being compiled. The library stops at the first fault and may not say where it is,
// so each part is tried by itself, and what is told of a reference is put to every part that has it. A fault that lies in another
// document is told of that one.
func (c *compiler) explain(d *document, err error) (problems []Problem) {
	parts := partsOf(d)
	faults := []error{err}
	for _, part := range parts {
		if _, err := c.Compile(urlOf(d.file) + "#" + (&url.URL{Path: part.at}).EscapedPath()); err != nil {
			faults = append(faults, err)
		}
	}
	for _, fault := range faults {
		var invalid *jsonschema.SchemaValidationError
		var regex *jsonschema.InvalidRegexError
		switch {
		case errors.As(fault, &invalid):
			problems = append(problems, c.invalidSchema(invalid)...)
		case errors.As(fault, &regex):
			file, pointer := c.place(regex.URL)
			problems = append(problems, Problem{file, pointer, fmt.Sprintf("the pattern cannot be used: %v", regex.Err),
				"write it as a Go regular expression (RE2)"})
		default:
			problems = append(problems, c.badReference(d, parts, fault)...)
		}
	}
	return problems
}

// badReference is about a reference that leads nowhere.
func (c *compiler) badReference(d *document, parts []part, fault error) (problems []Problem) {
	var (
		load   *jsonschema.LoadURLError
		gone   *jsonschema.JSONPointerNotFoundError
		anchor *jsonschema.AnchorNotFoundError
		target string
		whole  bool // the document itself is not there
		hint   = "there is nothing: correct the reference"
	)
	switch {
	case errors.As(fault, &load) && errors.Is(load.Err, errBroken):
		return nil
	case errors.As(fault, &load):
		target, whole, hint = load.URL, true, load.Err.Error()
	case errors.As(fault, &gone):
		target = gone.URL
	case errors.As(fault, &anchor):
		target, hint = anchor.Reference, "there is no such anchor: correct the reference"
	default:
		return []Problem{{d.file, "", strings.ReplaceAll(fault.Error(), base, ""), "correct the schema"}}
	}
	file, fragment := c.place(target)
	for _, part := range parts {
		refFile, refFragment := c.place(part.refersTo)
		if part.refersTo == "" || refFile != file || !whole && refFragment != fragment {
			continue
		}
		problem := "refers to " + file
		if !whole {
			problem += "#" + fragment
		}
		problems = append(problems, Problem{d.file, part.at, problem, hint})
	}
	return problems
}

// invalidSchema says where a schema breaks the rules of its draft.
func (c *compiler) invalidSchema(invalid *jsonschema.SchemaValidationError) (problems []Problem) {
	file, at := c.place(invalid.URL)
	var broken *jsonschema.ValidationError
	if !errors.As(invalid.Err, &broken) {
		return []Problem{{file, at, invalid.Error(), "correct the schema"}}
	}
	for _, field := range fieldsOf(broken, c.documents[file].value) {
		problems = append(problems, Problem{file, at + field.Pointer, field.Problem, "correct the schema"})
	}
	return problems
}

// place turns a URL of the library into a file and a JSON Pointer.
func (c *compiler) place(location string) (file, pointer string) {
	location, pointer, _ = strings.Cut(location, "#")
	if unescaped, err := url.PathUnescape(pointer); err == nil {
		pointer = unescaped
	}
	if file, known := c.files[location]; known {
		return file, pointer
	}
	file = strings.TrimPrefix(location, base)
	if unescaped, err := url.PathUnescape(file); err == nil && file != location {
		file = unescaped
	}
	return file, pointer
}
