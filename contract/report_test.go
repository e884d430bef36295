package contract

import (
	"io/fs"
	"strings"
	"testing"
)

func checkText(t *testing.T, now, against map[string]string) (text string, r *Report) {
	t.Helper()
	var former fs.FS
	if against != nil {
		former = folderOf(against)
	}
	r = CheckFolder(folderOf(now), former, "")
	var b strings.Builder
	if err := r.Write(&b); err != nil {
		t.Fatal(err)
	}
	return b.String(), r
}

func TestCheckFolder(t *testing.T) {
	const schema = `{"type":"object","required":["id"],"properties":{"id":{"$ref":"common/id.json"},"n":{"type":"integer"}}}`
	const keep = "leave the version as it is and add one with a new schema_ref"
	const id = `{"type":"string","minLength":3}`
	good := map[string]string{
		"case.v1.json": schema, "common/id.json": id,
		"samples/case.v1/full.json": `{"id":"abc","n":12345678901234567890}`, "samples/case.v1/no-id.invalid.json": `{"n":1}`,
		"samples/common/id/short.invalid.json": `"ab"`, "samples/id/ok.json": `"abc"`, "samples/README.md": "x",
	}
	with := func(changes map[string]string) map[string]string {
		all := map[string]string{}
		for name, text := range good {
			all[name] = text
		}
		for name, text := range changes {
			if all[name] = text; text == "" {
				delete(all, name)
			}
		}
		return all
	}
	for _, tt := range []struct {
		name    string
		now     map[string]string
		against map[string]string
		want    string
	}{
		{"good", good, nil, "2 schemas, 4 samples, 0 compared: 0 problems, 0 notes\n"},
		{"against itself", good, good, "2 schemas, 4 samples, 2 compared: 0 problems, 0 notes\n"},
		{"nothing", map[string]string{}, nil,
			"problem: there is no schema in the folder: put one into a file named schema_ref.json, or configure no contracts\n" +
				"0 schemas, 0 samples, 0 compared: 1 problems, 0 notes\n"},
		{"samples", with(map[string]string{
			"samples/case.v1/bad.json": `{"n":"x"}`, "samples/case.v1/fine.invalid.json": `{"id":"abc"}`,
			"samples/case.v1/broken.json":         `{`,
			"samples/case.v1/broken.invalid.json": `{`, "samples/case.v2/x.json": `1`, "samples/x.json": `1`}), nil,
			"problem: samples/case.v1/bad.json#/id: is missing: correct the sample or the schema\n" +
				"problem: samples/case.v1/bad.json#/n: must be integer, and is string: correct the sample or the schema\n" +
				"problem: samples/case.v1/broken.invalid.json: is not JSON: unexpected EOF: a sample that must not pass shows most " +
				"when it is valid JSON\n" +
				"problem: samples/case.v1/broken.json: is not JSON: unexpected EOF: correct the sample or the schema\n" +
				"problem: samples/case.v1/fine.invalid.json: passes, and its name says that it must not: " +
				"tighten the schema, or rename the sample\n" +
				"problem: samples/case.v2/x.json: there is no schema case.v2: name the folder after a schema_ref\n" +
				"problem: samples/x.json: a sample belongs to no schema: put it into a folder of the schema_ref's name\n" +
				"2 schemas, 9 samples, 0 compared: 7 problems, 0 notes\n"},
		{"a schema that cannot be used", with(map[string]string{"case.v1.json": `{"type":"objekt"}`}), good,
			`problem: case.v1.json#/type: must be one of "array", "boolean", "integer", "null", "number", "object", "string": ` +
				"correct the schema\n" +
				"2 schemas, 4 samples, 1 compared: 1 problems, 0 notes\n"},
		{"a change in a shared file", with(map[string]string{"common/id.json": `{"type":"string","minLength":4}`}), good,
			"problem: common/id.json#/minLength: the bound is tighter: at least 4, and was at least 3: " + keep + "\n" +
				"problem: samples/case.v1/full.json#/id: must have at least 4 characters, and has 3: correct the sample or the schema\n" +
				"problem: samples/id/ok.json: must have at least 4 characters, and has 3: correct the sample or the schema\n" +
				"2 schemas, 4 samples, 2 compared: 3 problems, 0 notes\n"},
		{"a sample of before",
			with(map[string]string{"common/id.json": `{"type":"string","minLength":3,"pattern":"^[a-z]+$"}`,
				"samples/id/ok.json": ""}),
			with(map[string]string{"samples/id/ok.json": `"ab1"`}),
			`problem: common/id.json#/pattern: the pattern "^[a-z]+$" is new: whether what was allowed still fits cannot be told: ` + keep + "\n" +
				`problem: samples/id/ok.json: must match the pattern "^[a-z]+$": this sample of the former version no longer passes: ` + keep + "\n" +
				"2 schemas, 3 samples, 2 compared: 2 problems, 0 notes\n"},
		{"a schema gone", with(map[string]string{"case.v1.json": "", "samples/case.v1/full.json": "",
			"samples/case.v1/no-id.invalid.json": ""}), good,
			"problem: case.v1.json: the schema is gone: events of it would be quarantined: keep it as long as the log has any\n" +
				"1 schemas, 2 samples, 1 compared: 1 problems, 0 notes\n"},
		{"a new version beside", with(map[string]string{"case.v2.json": `{"type":"object","required":["x"]}`}), good,
			"3 schemas, 4 samples, 2 compared: 0 problems, 0 notes\n"},
		{"moved to another folder", with(map[string]string{"case.v1.json": "", "cases/case.v1.json": strings.Replace(schema,
			"common/", "../common/", 1)}), good,
			"2 schemas, 4 samples, 2 compared: 0 problems, 0 notes\n"},
		{"wider", with(map[string]string{"case.v1.json": strings.Replace(schema, `"integer"`, `["integer","null"]`, 1)}), good,
			"note: case.v1.json#/properties/n/type: the type is wider: null is new: readers may meet what they do not know\n" +
				"2 schemas, 4 samples, 2 compared: 0 problems, 1 notes\n"},
		{"a former folder that cannot be used", good, map[string]string{"case.v1.json": `{`},
			"problem: (former) case.v1.json: is not JSON: unexpected EOF: write valid JSON\n" +
				"2 schemas, 4 samples, 0 compared: 1 problems, 0 notes\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			text, r := checkText(t, tt.now, tt.against)
			if text != tt.want {
				t.Errorf("%s\nwant\n%s", text, tt.want)
			}
			if want := !strings.Contains(tt.want, "problem: "); r.OK() != want {
				t.Errorf("OK is %v, want %v", r.OK(), want)
			}
		})
	}
}
