package contract

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/pillarbox-dev/pillarbox/relay"
)

// folderOf makes a folder of files by name.
func folderOf(files map[string]string) fstest.MapFS {
	folder := fstest.MapFS{}
	for name, text := range files {
		folder[name] = &fstest.MapFile{Data: []byte(text)}
	}
	return folder
}

func load(t testing.TB, files map[string]string, change ...func(*Config)) *Contracts {
	t.Helper()
	config := Config{FS: folderOf(files)}
	for _, c := range change {
		c(&config)
	}
	contracts, err := Load(config)
	if err != nil {
		t.Fatal(err)
	}
	return contracts
}

// breach returns what a payload breaks of a schema; "" when it passes.
func breach(t testing.TB, schema, payload string) string {
	t.Helper()
	err := load(t, map[string]string{"s.json": schema}).Check(&relay.Event{SchemaRef: "s", Payload: []byte(payload)})
	if err == nil {
		return ""
	}
	return strings.TrimPrefix(err.Error(), "breaks the contract s: ")
}

const (
	draft07     = `"$schema":"http://json-schema.org/draft-07/schema#"`
	draft202012 = `"$schema":"https://json-schema.org/draft/2020-12/schema"`
)

func TestReferencesWithinTheFolder(t *testing.T) {
	street := `{"$defs":{"street":{"type":"string","minLength":2}},"definitions":{"zip":{"pattern":"^[0-9]+$"}}}`
	for _, tt := range []struct {
		name  string
		files map[string]string
	}{
		{"beside", map[string]string{"s.json": `{"properties":{"a":{"$ref":"common.json#/$defs/street"}}}`,
			"common.json": street}},
		{"in a folder", map[string]string{"s.json": `{"properties":{"a":{"$ref":"shared/common.json#/$defs/street"}}}`,
			"shared/common.json": street}},
		{"from a folder", map[string]string{"x/s.json": `{"properties":{"a":{"$ref":"../shared/common.json#/$defs/street"}}}`,
			"shared/common.json": street}},
		{"through another", map[string]string{"s.json": `{"properties":{"a":{"$ref":"b.json"}}}`,
			"b.json":      `{"$ref":"common.json#/$defs/street"}`,
			"common.json": street}},
		{"by $id", map[string]string{"s.json": `{"properties":{"a":{"$ref":"https://example.com/street"}}}`,
			"common.json": `{"$id":"https://example.com/street","type":"string","minLength":2}`}},
		{"relative to an $id, by $id", map[string]string{
			"s.json":      `{"$id":"https://example.com/schemas/s","properties":{"a":{"$ref":"street"}}}`,
			"common.json": `{"$id":"https://example.com/schemas/street","type":"string","minLength":2}`}},
		{"relative to an $id, by file", map[string]string{
			"x/s.json":        `{"$id":"https://example.com/schemas/s.json","properties":{"a":{"$ref":"common/c.json#/$defs/street"}}}`,
			"x/common/c.json": street}},
		{"relative $id",
			map[string]string{"s.json": `{"$id":"v1/s.json","properties":{"a":{"$ref":"/common.json#/$defs/street"}}}`,
				"common.json": street}},
		{"by anchor", map[string]string{"s.json": `{"properties":{"a":{"$ref":"common.json#street"}}}`,
			"common.json": `{"$defs":{"x":{"$anchor":"street","type":"string","minLength":2}}}`}},
		{"draft-07",
			map[string]string{"s.json": `{` + draft07 + `,"properties":{"a":{"$ref":"common.json#/definitions/street"}}}`,
				"common.json": `{` + draft07 + `,"definitions":{"street":{"type":"string","minLength":2}}}`}},
		{"within",
			map[string]string{"s.json": `{"properties":{"a":{"$ref":"#/$defs/b"}},"$defs":{"b":{"type":"string","minLength":2}}}`}},
		{"names that need escapes", map[string]string{"s.json": `{"properties":{"a":{"$ref":"ż%20%25.json#/$defs/b"}}}`,
			"ż %.json": `{"$defs":{"b":{"type":"string","minLength":2}}}`}},
		{"itself", map[string]string{"s.json": `{"minLength":2,"properties":{"a":{"$ref":"#"},"b":{"$ref":"s.json"}}}`}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			contracts := load(t, tt.files)
			if err := contracts.Check(&relay.Event{SchemaRef: "s", Payload: []byte(`{"a":"ok"}`)}); err != nil {
				t.Error(err)
			}
			err := contracts.Check(&relay.Event{SchemaRef: "s", Payload: []byte(`{"a":"x"}`)})
			if err == nil || !strings.Contains(err.Error(), "/a must have at least 2 characters") {
				t.Errorf("error %v, want /a too short", err)
			}
		})
	}
}

// A schema_ref is the name of a file, wherever it is, or its path.
func TestSchemaRefs(t *testing.T) {
	contracts := load(t, map[string]string{"reg.case.A.v1.json": `{"const":1}`, "billing/in/reg.B.v1.json": `{"const":2}`,
		"samples/reg.case.A.v1/x.json": `1`, ".hidden.json": `{`, ".git/x.json": `{`, "README.md": `{`, "billing/.x/y.json": `{`})
	for ref, payload := range map[string]string{"reg.case.A.v1": "1", "reg.B.v1": "2", "billing/in/reg.B.v1": "2"} {
		if err := contracts.Check(&relay.Event{SchemaRef: ref, Payload: []byte(payload)}); err != nil {
			t.Errorf("%s: %v", ref, err)
		}
		if err := contracts.Check(&relay.Event{SchemaRef: ref, Payload: []byte("3")}); err == nil {
			t.Errorf("%s: 3 passes", ref)
		}
	}
	for _, ref := range []string{"x", "y", ".hidden", "README", "in/reg.B.v1", "reg.case.a.v1", "samples/reg.case.A.v1/x"} {
		if err := contracts.Check(&relay.Event{SchemaRef: ref, Payload: []byte("1")}); err == nil {
			t.Errorf("%s has a contract", ref)
		}
	}
}

// A ConfigMap that Kubernetes mounts consists of links, beside a hidden folder.
func TestMountedConfigMap(t *testing.T) {
	dir := t.TempDir()
	data := filepath.Join(dir, "..2026_11_29")
	if err := os.Mkdir(data, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(data, "s.v1.json"), []byte(`{"const":1}`), 0o600); err != nil {
		t.Fatal(err)
	}
	for link, to := range map[string]string{"..data": "..2026_11_29", "s.v1.json": "..data/s.v1.json"} {
		if err := os.Symlink(to, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	contracts, err := Load(Config{FS: os.DirFS(dir)})
	if err != nil {
		t.Fatal(err)
	}
	if err := contracts.Check(&relay.Event{SchemaRef: "s.v1", Payload: []byte("2")}); err == nil {
		t.Error("2 passes")
	}
}

// Everything that is wrong in the folder is told at once, with its file and place.
func TestLoadProblems(t *testing.T) {
	for _, tt := range []struct {
		name  string
		files map[string]string
		want  []string // how each problem begins
	}{
		{"empty", map[string]string{"README.md": ""}, []string{"there is no schema in the folder"}},
		{"JSON", map[string]string{"a.json": `{"a":`, "b.json": `{} {}`, "c.json": "", "d.json": "\"\xff\"",
			"e.json": `{"x":{"a":1,"a":2}}`,
			"f.json": `{"maximum":1e2000}`},
			[]string{"a.json: is not JSON: unexpected EOF", "b.json: is not JSON: there is more", "c.json: is empty",
				"d.json: is not valid UTF-8",
				"e.json#/x/a: is there twice", "f.json#/maximum: is a number of more than"}},
		{"no schema", map[string]string{"a.json": `[]`, "b.json": `"x"`},
			[]string{"a.json: must be boolean or object, and is array", "b.json: must be boolean or object, and is string"}},
		{"rules of the draft", map[string]string{
			"a.json": `{"type":"strin","properties":{"b":{"minLength":-1,"required":"x"},"c/d":{"pattern":"["}}}`,
			"b.json": `{` + draft07 + `,"type":["string","string"],"definitions":{"x":{"maximum":"1"}}}`},
			[]string{"a.json#/properties/b/minLength: must be at least 0",
				"a.json#/properties/b/required: must be array, and is string",
				"a.json#/properties/c~1d/pattern: is not a valid regex", `a.json#/type: must be one of "array", "boolean"`,
				"b.json#/definitions/x/maximum: must be number, and is string", "b.json#/type: has equal items, at 0 and 1"}},
		{"drafts", map[string]string{"a.json": `{"$schema":"http://json-schema.org/draft-04/schema#"}`,
			"b.json": `{"$schema":"https://json-schema.org/draft/2019-09/schema"}`,
			"c.json": `{"$schema":"https://example.com/own"}`, "d.json": `{"$schema":""}`},
			[]string{"a.json#/$schema: the draft", "b.json#/$schema: the draft", "c.json#/$schema: the draft",
				"d.json#/$schema: the draft"}},
		{"patterns",
			map[string]string{"a.json": `{"properties":{"a":{"pattern":"(?=x)"},"b":{"pattern":"(?!y)"}},"patternProperties":{"(?<=z)":true}}`},
			[]string{"a.json#/patternProperties/(?<=z): ", "a.json#/properties/a/pattern: is not a valid regex",
				"a.json#/properties/b/pattern: is not a valid regex"}},
		{"references", map[string]string{
			"a.json": `{"properties":{"f":{"$ref":"gone.json"},"g":{"items":{"$ref":"b.json#/$defs/gone"}},"h":{"$ref":"#nowhere"},"i":{"$ref":"#/$defs/x"},` +
				`"j":{"$ref":"https://example.com/elsewhere.json"},"k":{"$ref":"../../etc/passwd"},"l":{"$ref":"file:///etc/passwd"},"ok":{"$ref":"b.json"}}}`,
			"b.json": `{"$defs":{"x":{}}}`},
			[]string{"a.json#/properties/f: refers to gone.json: there is no file gone.json in the folder",
				"a.json#/properties/g/items: refers to b.json#/$defs/gone: there is nothing",
				"a.json#/properties/h: refers to a.json#nowhere: there is no such anchor",
				"a.json#/properties/i: refers to a.json#/$defs/x: there is nothing",
				"a.json#/properties/j: refers to https://example.com/elsewhere.json: it is outside of the folder",
				"a.json#/properties/k: refers to etc/passwd: there is no file",
				"a.json#/properties/l: refers to file:///etc/passwd: it is outside of the folder"}},
		{"one and another", map[string]string{"a.json": `{`, "b.json": `{"$schema":"x"}`, "c.json": `{"type":1}`,
			"d.json": `{"anyOf":[{"$ref":"a.json"},{"$ref":"b.json"},{"$ref":"c.json"},{"$ref":"e.json"}]}`},
			[]string{"a.json: is not JSON", "b.json#/$schema: the draft", "c.json#/type: ",
				"d.json#/anyOf/3: refers to e.json"}},
		{"names", map[string]string{"x/a.json": `{}`, "y/a.json": `{}`, "y/b.json": `{}`},
			[]string{"y/a.json: the schema_ref a has another file already, x/a.json"}},
		{"ids", map[string]string{"a.json": `{"$id":"https://example.com/a"}`, "b.json": `{"$id":"https://example.com/a"}`,
			"c.json": `{"$id":"a.json"}`,
			"d.json": `{"$id":"http://json-schema.org/draft-07/schema"}`, "e.json": `{"$id":"http://[::"}`},
			[]string{"b.json#/$id: is the same as that of a.json", "c.json#/$id: is the same as that of a.json",
				"d.json#/$id: ", "e.json#/$id: is no URI reference"}},
		{"samples", map[string]string{"a.json": `{}`, "samples/x.json": `1`},
			[]string{"samples/x.json: a sample belongs to no schema"}},
		{"big", map[string]string{"a.json": `{"description":"` + strings.Repeat("x", 4<<20) + `"}`},
			[]string{"a.json: cannot be read: it has"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := Load(Config{FS: folderOf(tt.files)})
			var failed *LoadError
			if !errors.As(err, &failed) {
				t.Fatalf("error %v, want %d problems", err, len(tt.want))
			}
			for i, p := range failed.Problems {
				if i >= len(tt.want) || !strings.HasPrefix(p.String(), tt.want[i]) {
					t.Errorf("problem %d: %s, want %q", i, p, append(tt.want, make([]string, i+1)...)[i])
				}
				if p.Hint == "" {
					t.Errorf("problem %d: %s: has no hint", i, p)
				}
			}
			if len(failed.Problems) < len(tt.want) {
				t.Errorf("%d problems, want %d:\n%v", len(failed.Problems), len(tt.want), err)
			}
		})
	}
}

func TestConfigProblems(t *testing.T) {
	_, err := Load(Config{Draft: "draft-04", Unknown: "no", Missing: "maybe"})
	for _, want := range []string{"FS is missing", `draft is "draft-04"`, `unknown is "no"`, `missing is "maybe"`} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v does not say %q", err, want)
		}
	}
	_, err = Load(Config{FS: os.DirFS(filepath.Join(t.TempDir(), "gone"))})
	if err == nil || !errors.As(err, new(*LoadError)) || !strings.Contains(err.Error(), "check that it is there") {
		t.Errorf("error %v, want one for a folder that is not there", err)
	}
	var _ fs.FS = fstest.MapFS{}
}

// The draft decides what keywords mean.
func TestDrafts(t *testing.T) {
	tuple := `{%"items":[{"type":"string"}],"additionalItems":false}`
	contracts := load(t, map[string]string{"old.json": strings.Replace(tuple, "%", draft07+",", 1),
		"new.json": `{` + draft202012 + `,"prefixItems":[{"type":"string"}],"items":false}`})
	for _, ref := range []string{"old", "new"} {
		for payload, passes := range map[string]bool{`["a"]`: true, `[1]`: false, `["a",1]`: false} {
			err := contracts.Check(&relay.Event{SchemaRef: ref, Payload: []byte(payload)})
			if (err == nil) != passes {
				t.Errorf("%s: %s: error %v, want it to pass: %v", ref, payload, err, passes)
			}
		}
	}
	load(t, map[string]string{"s.json": strings.Replace(tuple, "%", "", 1)}, func(c *Config) { c.Draft = Draft07 })
	if _, err := Load(Config{FS: folderOf(map[string]string{"s.json": strings.Replace(tuple, "%", "", 1)})}); err == nil {
		t.Error("a list of items is a schema of 2020-12")
	}
}
