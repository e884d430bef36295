package contract

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// Config says where the contracts are and what happens to events without one.
type Config struct {
	// FS is the folder: os.DirFS("contracts"), or an embed.FS of a service. Required.
	FS fs.FS
	// Draft is that of schemas without $schema: Draft202012 or Draft07. Default Draft202012.
	Draft Draft
	// Unknown is for events whose schema_ref has no schema in the folder. Default Quarantine.
	Unknown Action
	// Missing is for events with a payload and no schema_ref. Default Pass.
	Missing Action
}

// Draft is a version of JSON Schema.
type Draft string

const (
	Draft202012 Draft = "2020-12"
	Draft07     Draft = "draft-07"
)

// Action is what happens to an event that cannot be checked.
type Action string

const (
	Quarantine Action = "quarantine"
	Pass       Action = "pass"
)

// Contracts are the schemas of a folder. They do not change; any number of goroutines may use them.
type Contracts struct {
	schemas          map[string]*jsonschema.Schema // by schema_ref; those in folders by their path as well
	unknown, missing Action
}

// Problem is something that is wrong in the folder.
type Problem struct {
	// File is the path within the folder, and Pointer the JSON Pointer within the file; "" is all of it.
	File    string
	Pointer string
	Problem string
	Hint    string // what to do
}

func (p Problem) String() string {
	text := p.Problem
	if p.Hint != "" {
		text += ": " + p.Hint
	}
	switch {
	case p.File == "":
		return text
	case p.Pointer == "":
		return p.File + ": " + text
	}
	return fmt.Sprintf("%s#%s: %s", p.File, p.Pointer, text)
}

// LoadError says why contracts cannot be used: all problems of the folder.
type LoadError struct{ Problems []Problem }

func (e *LoadError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "the contracts have %d problems:", len(e.Problems))
	for _, p := range e.Problems {
		b.WriteString("\n  " + p.String())
	}
	return b.String()
}

// Load reads and compiles every schema of the folder. The error is a *LoadError with all problems, or joins what is wrong with c.
func Load(c Config) (*Contracts, error) {
	if c.Draft == "" {
		c.Draft = Draft202012
	}
	if c.Unknown == "" {
		c.Unknown = Quarantine
	}
	if c.Missing == "" {
		c.Missing = Pass
	}
	if err := c.validate(); err != nil {
		return nil, err
	}
	loaded := readFolder(c.FS)
	compiled, problems := loaded.compile(c.Draft)
	if len(problems) > 0 {
		return nil, &LoadError{problems}
	}
	contracts := &Contracts{schemas: map[string]*jsonschema.Schema{}, unknown: c.Unknown, missing: c.Missing}
	for _, d := range loaded.documents {
		contracts.schemas[d.ref] = compiled.schemas[d.file]
		contracts.schemas[d.path] = compiled.schemas[d.file]
	}
	return contracts, nil
}

func (c *Config) validate() error {
	var problems []error
	if c.FS == nil {
		problems = append(problems, errors.New("contracts: FS is missing: name the folder that holds the schemas"))
	}
	if c.Draft != Draft202012 && c.Draft != Draft07 {
		problems = append(problems, fmt.Errorf("contracts: draft is %q: it must be %s or %s", c.Draft, Draft202012, Draft07))
	}
	for _, option := range []struct {
		name   string
		action Action
	}{{"unknown", c.Unknown}, {"missing", c.Missing}} {
		if option.action != Quarantine && option.action != Pass {
			problems = append(problems, fmt.Errorf("contracts: %s is %q: it must be %s or %s", option.name, option.action,
				Quarantine, Pass))
		}
	}
	return errors.Join(problems...)
}
