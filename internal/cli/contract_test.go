package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/pillarbox-dev/pillarbox/outbox"
)

const hubSchema = `{"type": "object", "required": ["hub"], "properties": {"hub": {"type": "string"}, "ports": {"type": "integer"}}}`

// contracts writes a folder of schemas and samples, by their paths in it.
func contracts(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestContractCheck(t *testing.T) {
	before := contracts(t, map[string]string{
		"hub.v1.json": hubSchema, "samples/hub.v1/good.json": `{"hub": "h"}`, "samples/hub.v1/bad.invalid.json": `{}`,
	})
	if out := must(t, "contract", "check", before); !strings.Contains(out, "1 schemas, 2 samples, 0 compared: 0 problems, 0 notes") {
		t.Errorf("a good folder: %s", out)
	}
	after := contracts(t, map[string]string{
		"hub.v1.json": `{"type": "object", "required": ["hub", "ports"], "properties": {"hub": {"type": "integer"}, "ports": {"type": "integer"}}}`,
	})
	code, out, _ := runCLI("contract", "check", after, "--against", before)
	if code != exitFailed || !strings.Contains(out, "hub.v1.json#/required") || !strings.Contains(out, "hub.v1.json#/properties/hub") {
		t.Errorf("a change that breaks: exit status %d\n%s", code, out)
	}
	code, _, errOut := runCLI("contract", "check", filepath.Join(before, "nowhere"))
	if code != exitFailed || !strings.Contains(errOut, "name their folder") {
		t.Errorf("no folder: exit status %d, %s", code, errOut)
	}
}

// What breaks its contract is quarantined with the field that broke it, and everything else goes out.
func TestRunHoldsEventsToTheirContracts(t *testing.T) {
	onBoth(t, func(r *rig) {
		dir := contracts(t, map[string]string{"hub.v1.json": hubSchema})
		event := func(ref, payload string) outbox.Event {
			return outbox.Event{Topic: "hub", Type: "T", Key: "k", SchemaRef: ref, Payload: []byte(payload)}
		}
		ids := r.enqueue(true, event("hub.v1", `{"hub": "h"}`), event("hub.v1", `{"hub": "h", "ports": "two"}`),
			event("hub.v2", `{}`), event("", `{"free": true}`), event("hub.v1", `{"hub": "h2"}`))
		start(t, "run", "-c", r.config("contracts: {dir: "+dir+"}"))
		within(t, 20*time.Second, "three deliveries", func() bool { return r.receiver.distinct() == 3 })
		arrived := map[string]bool{}
		for _, a := range r.receiver.arrived() {
			arrived[a.id] = true
		}
		for i, id := range ids {
			if want := i != 1 && i != 2; arrived[id] != want {
				t.Errorf("event %d arrived: %v, want %v", i, arrived[id], want)
			}
		}
		rows := map[string]string{}
		within(t, 10*time.Second, "two quarantined rows", func() bool {
			found, err := r.db.Query("select last_error_code, last_error_message from " + r.table("outbox_delivery") +
				" where status = 'QUARANTINED' and attempt_count = 0")
			if err != nil {
				t.Fatal(err)
			}
			defer found.Close()
			for found.Next() {
				var code, message string
				if err := found.Scan(&code, &message); err != nil {
					t.Fatal(err)
				}
				rows[code] = message
			}
			return found.Err() == nil && len(rows) == 2
		})
		if !strings.Contains(rows["SCHEMA_INVALID"], "/ports") || rows["SCHEMA_UNKNOWN"] == "" {
			t.Errorf("quarantined: %v, want SCHEMA_INVALID with /ports, and SCHEMA_UNKNOWN", rows)
		}
	})
}
