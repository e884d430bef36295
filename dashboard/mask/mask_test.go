package mask_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/pillarbox-dev/pillarbox/dashboard/mask"
)

func TestJSON(t *testing.T) {
	m := mask.New([]string{"iban", "Password"})
	for name, c := range map[string]struct{ document, want string }{
		"nothing to hide": {`{ "a" : 1.0 }`, `{ "a" : 1.0 }`},
		"text":            {`{"iban":"DE02"}`, `{"iban":"(masked)"}`},
		"any case":        {`{"IBAN":"DE02","password":1}`, `{"IBAN":"(masked)","password":"(masked)"}`},
		"an escaped name": {`{"iba\u006e":"DE02"}`, `{"iba\u006e":"(masked)"}`},
		"the rest as it is": {
			"{\"n\": 1.50e3,\n \"iban\" : [1, {\"x\": \"DE02\"}] , \"t\":\"\\u00e9\"}",
			"{\"n\": 1.50e3,\n \"iban\" : \"(masked)\" , \"t\":\"\\u00e9\"}",
		},
		"deep": {
			`[[{"a":{"iban":{"b":2}}},{"iban":null}],"iban"]`,
			`[[{"a":{"iban":"(masked)"}},{"iban":"(masked)"}],"iban"]`,
		},
		"twice the name":  {`{"iban":"DE02","iban":"DE03"}`, `{"iban":"(masked)","iban":"(masked)"}`},
		"a value like it": {`{"a":"iban","b":["password","x"]}`, `{"a":"iban","b":["password","x"]}`},
		"a longer name":   {`{"ibanOf":"DE02"}`, `{"ibanOf":"DE02"}`},
		"a scalar":        {`"iban"`, `"iban"`},
		"a huge number":   {`{"n":1e999,"iban":1}`, `{"n":1e999,"iban":"(masked)"}`},
		"broken":          {`{"iban":"DE02"`, `"(masked)"`},
		"broken within":   {`{"iban":{"x":}}`, `"(masked)"`},
		"empty":           {``, ``},
	} {
		if got := string(m.JSON(json.RawMessage(c.document))); got != c.want {
			t.Errorf("%s: got %s, want %s", name, got, c.want)
		}
	}
	var none *mask.Mask
	if got := string(none.JSON(json.RawMessage(`{"iban":1}`))); got != `{"iban":1}` || none.Any() {
		t.Errorf("without a mask: got %s", got)
	}
}

func TestBytesAndHeaders(t *testing.T) {
	m := mask.New([]string{"iban"})
	for payload, want := range map[string]string{
		`{"iban":1}`: `{"iban":"(masked)"}`, "\x00\x01DE02": mask.Text, "": "",
	} {
		if got := string(m.Bytes([]byte(payload))); got != want {
			t.Errorf("Bytes(%q) = %q, want %q", payload, got, want)
		}
	}
	if got := m.Header("Iban", "DE02"); got != mask.Text {
		t.Errorf("Header(Iban) = %q", got)
	}
	more := m.With("token")
	got := more.Header("Token", "x") + more.Header("iban", "x") + m.Header("token", "x")
	if want := mask.Text + mask.Text + "x"; got != want {
		t.Errorf("With hides %q, want %q", got, want)
	}
}

func TestHolds(t *testing.T) {
	m := mask.New([]string{"iban"})
	masked := m.JSON(json.RawMessage(`{"a":[{"iban":"DE02"},{"b/~":{"iban":1}}],"iban":"DE03"}`))
	if got, want := m.Holds(masked), []string{"/a/0/iban", "/a/1/b~1~0/iban", "/iban"}; !slices.Equal(got, want) {
		t.Errorf("Holds = %q, want %q", got, want)
	}
	for _, document := range []string{`{"iban":"DE02"}`, `{"note":"(masked)"}`, `{`} {
		if got := m.Holds(json.RawMessage(document)); len(got) > 0 {
			t.Errorf("Holds(%s) = %q, want none", document, got)
		}
	}
	if got := m.Holds(json.RawMessage(`{"n":1e999,"iban":"(masked)"}`)); len(got) != 1 {
		t.Errorf("Holds beside a huge number = %q, want /iban", got)
	}
	if got := m.Holds(json.RawMessage(`"(masked)"`)); len(got) != 1 {
		t.Errorf("Holds of a document that was not understood = %q, want it", got)
	}
}

func TestHoldsBytes(t *testing.T) {
	m := mask.New([]string{"iban"})
	for payload, want := range map[string]int{
		"\x00\x01DE02": 1, `{"iban":1,"a":{"iban":2}}`: 2, `"x"`: 0, "": 0,
	} {
		if got := m.HoldsBytes(m.Bytes([]byte(payload))); len(got) != want {
			t.Errorf("what is shown of %q holds the mask at %q, want %d places", payload, got, want)
		}
		if got := m.HoldsBytes([]byte(payload)); len(got) != 0 {
			t.Errorf("%q holds the mask at %q, want none", payload, got)
		}
	}
}

// FuzzJSON: whatever the document, no value of a hidden field is left, and what comes out is JSON.
func FuzzJSON(f *testing.F) {
	for _, seed := range []string{
		`{"iban":"s3cret"}`, `[{"a":{"IBAN":["s3cret"]}}]`, `{"iban":`, `{} {"iban":"s3cret"}`, `"s3cret`,
	} {
		f.Add([]byte(seed))
	}
	m := mask.New([]string{"iban"})
	f.Fuzz(func(t *testing.T, document []byte) {
		shown := m.JSON(document)
		if len(document) == 0 || !json.Valid(document) {
			return
		}
		if !json.Valid(shown) {
			t.Fatalf("%q became %q, which is no JSON", document, shown)
		}
		var left any
		if err := json.Unmarshal(shown, &left); err != nil {
			t.Fatal(err)
		}
		walk(t, left)
	})
}

func walk(t *testing.T, v any) {
	switch v := v.(type) {
	case []any:
		for _, item := range v {
			walk(t, item)
		}
	case map[string]any:
		for key, item := range v {
			if strings.ToLower(key) == "iban" && item != mask.Text {
				t.Errorf("%s shows %v", key, item)
			}
			walk(t, item)
		}
	}
}
