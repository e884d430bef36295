package contract

import (
	"fmt"
	"io/fs"
	"path"
	"strings"
)

// folder is what was read. It is complete also when there are problems, so that all of them can be told.
type folder struct {
	documents []*document // in the order of their files
	samples   []sample
	problems  []Problem
	broken    map[string]bool // files that are there and cannot be used: their own problem is told, and not again by who refers to them
}

// document is a schema file.
type document struct {
	file  string // contracts/…: billing/billing.Invoice.v2.json
	ref   string // billing.Invoice.v2
	path  string // billing/billing.Invoice.v2
	value any
}

// sample is a payload to try a schema with.
type sample struct {
	file    string
	ref     string
	invalid bool // it must not pass
	text    []byte
}

const (
	samplesFolder  = "samples"
	schemaSuffix   = ".json"
	invalidSuffix  = ".invalid.json"
	maxSchemaBytes = 4 << 20
)

// readFolder reads every file of the folder.
func readFolder(fsys fs.FS) *folder {
	f := &folder{broken: map[string]bool{}}
	err := fs.WalkDir(fsys, ".", func(file string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			f.wrong(file, "", fmt.Sprintf("cannot be read: %v", err), "check that it is there and that its rights allow it")
		case file != "." && strings.HasPrefix(path.Base(file), "."):
			if entry.IsDir() {
				return fs.SkipDir
			}
		case !entry.IsDir() && strings.HasSuffix(file, schemaSuffix):
			f.readFile(fsys, file)
		}
		return nil
	})
	if err != nil {
		f.wrong("", "", err.Error(), "check the folder")
	}
	if len(f.documents) == 0 && len(f.problems) == 0 {
		f.wrong("", "", "there is no schema in the folder",
			"put one into a file named schema_ref.json, or configure no contracts")
	}
	f.checkRefs()
	return f
}

func (f *folder) wrong(file, pointer, problem, hint string) {
	f.problems = append(f.problems, Problem{File: file, Pointer: pointer, Problem: problem, Hint: hint})
}

// readFile follows a symbolic link, which WalkDir does not.
func (f *folder) readFile(fsys fs.FS, file string) {
	info, err := fs.Stat(fsys, file)
	switch {
	case err != nil:
	case info.IsDir():
		return // a link to a folder, or a folder whose name ends like a file's
	case info.Size() > maxSchemaBytes:
		err = fmt.Errorf("it has %d bytes, more than %d", info.Size(), maxSchemaBytes)
	}
	var text []byte
	if err == nil {
		text, err = fs.ReadFile(fsys, file)
	}
	if err != nil {
		f.broken[file] = true
		f.wrong(file, "", fmt.Sprintf("cannot be read: %v", err), "check the file and its rights")
		return
	}
	if inside, is := strings.CutPrefix(file, samplesFolder+"/"); is {
		f.addSample(file, inside, text)
		return
	}
	value, fault := decode(text)
	if fault != nil {
		f.broken[file] = true
		f.wrong(file, fault.Pointer, fault.Problem, "write valid JSON")
		return
	}
	d := &document{file: file, path: strings.TrimSuffix(file, schemaSuffix), value: value}
	d.ref = path.Base(d.path)
	f.documents = append(f.documents, d)
}

func (f *folder) addSample(file, inside string, text []byte) {
	ref := path.Dir(inside)
	if ref == "." {
		f.wrong(file, "", "a sample belongs to no schema", "put it into a folder of the schema_ref's name")
		return
	}
	f.samples = append(f.samples, sample{file: file, ref: ref, text: text, invalid: strings.HasSuffix(file, invalidSuffix)})
}

// checkRefs finds schema_refs that two files have.
func (f *folder) checkRefs() {
	owner := map[string]*document{}
	for _, d := range f.documents {
		for _, name := range []string{d.ref, d.path} {
			if other := owner[name]; other != nil && other != d {
				f.wrong(d.file, "", fmt.Sprintf("the schema_ref %s has another file already, %s", name, other.file),
					"rename one of them")
				continue
			}
			owner[name] = d
		}
	}
}
