package contract

import (
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"slices"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// Report is what `pillarbox contract check` found.
type Report struct {
	// Schemas, Samples and Compared count what was looked at. Compared are schemas that both folders have.
	Schemas, Samples, Compared int
	// Problems make the check fail: schemas that cannot be used, samples that do not do as they should, changes that break
	// readers or events.
	Problems []Problem
	// Notes are changes that only widen what is allowed.
	Notes []Problem
}

// OK tells whether there are no problems.
func (r *Report) OK() bool { return len(r.Problems) == 0 }

// Write prints the report, one line for each problem and note.
func (r *Report) Write(w io.Writer) error {
	for _, list := range []struct {
		what     string
		problems []Problem
	}{{"problem", r.Problems}, {"note", r.Notes}} {
		for _, p := range list.problems {
			if _, err := fmt.Fprintf(w, "%s: %s\n", list.what, p); err != nil {
				return err
			}
		}
	}
	_, err := fmt.Fprintf(w, "%d schemas, %d samples, %d compared: %d problems, %d notes\n",
		r.Schemas, r.Samples, r.Compared, len(r.Problems), len(r.Notes))
	return err
}

// CheckFolder checks the schemas and samples of a folder, and, if against is not nil, whether readers and events of that former
// version of it can live with this one. draft is that of schemas without $schema; "" is Draft202012.
func CheckFolder(folder, against fs.FS, draft Draft) *Report {
	if draft == "" {
		draft = Draft202012
	}
	r := &Report{}
	now := readFolder(folder)
	compiled, problems := now.compile(draft)
	r.Schemas, r.Problems = len(now.documents), problems
	r.Samples = len(now.samples)
	for _, s := range now.samples {
		schema, known := now.schemaOf(s.ref, compiled)
		r.sample(s, schema, known)
	}
	if against != nil {
		r.compare(now, compiled, against, draft)
	}
	r.Problems, r.Notes = sorted(r.Problems), sorted(r.Notes)
	return r
}

func (f *folder) find(ref string) *document {
	for _, d := range f.documents {
		if d.ref == ref || d.path == ref {
			return d
		}
	}
	return nil
}

// schemaOf returns nil for a schema that is not there or could not be compiled.
func (f *folder) schemaOf(ref string, c *compiler) (schema *jsonschema.Schema, known bool) {
	d := f.find(ref)
	if d == nil {
		return nil, false
	}
	return c.schemas[d.file], true
}

func (f *folder) has(s sample) bool {
	return slices.ContainsFunc(f.samples, func(mine sample) bool {
		return mine.file == s.file &&
			bytes.Equal(mine.text, s.text)
	})
}

func (r *Report) wrong(file, pointer, problem, hint string) {
	r.Problems = append(r.Problems, Problem{file, pointer, problem, hint})
}

func (r *Report) sample(s sample, schema *jsonschema.Schema, known bool) {
	if !known {
		r.wrong(s.file, "", "there is no schema "+s.ref, "name the folder after a schema_ref")
		return
	}
	if schema == nil {
		return // its own problem is told
	}
	if _, fault := decode(s.text); fault != nil && s.invalid {
		r.wrong(s.file, fault.Pointer, fault.Problem, "a sample that must not pass shows most when it is valid JSON")
		return
	}
	fields := fieldsAgainst(schema, s.text, false)
	if s.invalid && len(fields) == 0 {
		r.wrong(s.file, "", "passes, and its name says that it must not", "tighten the schema, or rename the sample")
	}
	if !s.invalid {
		for _, field := range fields {
			r.wrong(s.file, field.Pointer, field.Problem, "correct the sample or the schema")
		}
	}
}

// compare looks at what has changed since a former version of the folder.
func (r *Report) compare(now *folder, compiled *compiler, against fs.FS, draft Draft) {
	const keep = "leave the version as it is and add one with a new schema_ref"
	former := readFolder(against)
	formerCompiled, problems := former.compile(draft)
	for _, p := range problems {
		p.File = "(former) " + p.File
		r.Problems = append(r.Problems, p)
	}
	for _, d := range former.documents {
		next, known := now.schemaOf(d.ref, compiled)
		old := formerCompiled.schemas[d.file]
		switch {
		case !known:
			r.wrong(d.file, "", "the schema is gone: events of it would be quarantined", "keep it as long as the log has any")
			continue
		case next == nil || old == nil:
			continue // their own problems are told
		}
		r.Compared++
		for _, change := range compare(old, next) {
			file, pointer := compiled.place(change.at)
			if change.breaking {
				r.wrong(file, pointer, change.problem, keep)
			} else {
				r.Notes = append(r.Notes, Problem{file, pointer, change.problem, "readers may meet what they do not know"})
			}
		}
	}
	for _, s := range former.samples {
		next, known := now.schemaOf(s.ref, compiled)
		if s.invalid || !known || next == nil || now.has(s) {
			continue
		}
		for _, field := range fieldsAgainst(next, s.text, false) {
			r.wrong(s.file, field.Pointer, field.Problem+": this sample of the former version no longer passes", keep)
		}
	}
}
