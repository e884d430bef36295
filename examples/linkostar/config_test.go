package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// The example file is right, and says what the defaults are.
func TestExampleConfig(t *testing.T) {
	c, err := loadConfig("config.yaml")
	must(t, err)
	if want := (retryConfig{Base: time.Minute, Attempts: 8, Factor: 2}); c.Registration.Retry != want {
		t.Errorf("retry: got %+v, want %+v", c.Registration.Retry, want)
	}
	without := config{Suppliers: c.Suppliers}
	without.setDefaults()
	if without.Registration.Retry != c.Registration.Retry || without.Registration.Timeout != c.Registration.Timeout ||
		without.Relay != c.Relay {
		t.Errorf("the defaults are %+v, but the example says %+v", without, c)
	}
	if _, err := destinations(c); err != nil {
		t.Error(err)
	}
}

// A wrong file is refused with all that is wrong with it.
func TestConfigProblems(t *testing.T) {
	for text, want := range map[string][]string{
		"": {"suppliers is empty"},
		"suppliers: {acme: {url: x}}\nsupplier-registration: {retries: 8}": {"field url not found", "field retries not found"},
		"suppliers: {Acme: {supplier_uuid: 1}}": {`the name "Acme"`, `supplier_uuid is "1"`, "hub_registration_url is missing",
			"device_registration_url is missing", "activation_url is missing", "secret_file is missing"},
		"supplier-registration: {retry: {base: 1ns, attempts: 101, factor: 0.5}}": {"retry.base is 1ns", "retry.attempts is 101",
			"retry.factor is 0.5"},
		"supplier-registration: {retry: {base: 24h, attempts: 100}}": {"the last wait would be more than"},
	} {
		file := filepath.Join(t.TempDir(), "c.yaml")
		must(t, os.WriteFile(file, []byte(text), 0o600))
		_, err := loadConfig(file)
		for _, part := range want {
			if err == nil || !strings.Contains(err.Error(), part) {
				t.Errorf("%q: got %v, want it to say %q", text, err, part)
			}
		}
	}
}

func TestFlagProblems(t *testing.T) {
	for args, want := range map[string]string{
		"demo":                                   "arguments that are no flags: demo",
		"--duration 1ms":                         "--duration can be 1s to 1h",
		"--relay-only":                           "need --config and --database",
		"--config x":                             "--config needs --database",
		"--service-only --relay-only":            "exclude each other",
		"--config x --database y --relay-beside": "--relay-beside is for the demo",
	} {
		var out bytes.Buffer
		err := (&program{stdout: &out, stderr: &out}).run(t.Context(), strings.Fields(args))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want it to say %q", args, err, want)
		}
	}
}

// The demo ends by itself, with Node.js, and its reckoning has the keys that every demo's has.
func TestDemo(t *testing.T) {
	node(t)
	for name, flags := range map[string][]string{
		"one process":                   nil,
		"a relay beside, on PostgreSQL": {"--relay-beside", "--database", databases["postgres"](t)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var out, progress bytes.Buffer
			args := append([]string{"--duration", "3s", "--json", "--node", nodeFolder, "--listen", ""}, flags...)
			err := (&program{stdout: &out, stderr: &progress}).run(t.Context(), args)
			if err != nil {
				t.Fatalf("%v\n%s", err, &progress)
			}
			if strings.Contains(progress.String(), "no supplier in Node.js") {
				t.Errorf("it ran without Node.js:\n%s", &progress)
			}
			var got map[string]float64
			must(t, json.Unmarshal(out.Bytes(), &got))
			keys := []string{"committed", "delivered", "duplicates", "false", "lost", "out_of_order", "quarantined", "relay_kills",
				"rolled_back", "seconds"}
			for _, key := range keys {
				if _, there := got[key]; !there || len(got) != len(keys) {
					t.Errorf("got %s, want the keys %q", &out, keys)
					break
				}
			}
			if got["committed"] == 0 || got["committed"] != got["delivered"]+got["quarantined"] || got["lost"]+got["false"] != 0 {
				t.Errorf("it does not add up: %s", &out)
			}
			if beside := slices.Contains(flags, "--relay-beside"); beside != (got["relay_kills"] == kills) {
				t.Errorf("%v kills", got["relay_kills"])
			}
		})
	}
}

// A database that was worked with by other suppliers is refused.
func TestDemoWantsAnEmptyDatabase(t *testing.T) {
	l := newLab(t, testRetry, time.Second, nobody(t))
	l.tell("hub")
	var out bytes.Buffer
	err := (&program{stdout: &out, stderr: &out}).run(t.Context(), []string{"--database", l.db.url, "--node", nodeFolder})
	if err == nil || !strings.Contains(err.Error(), "give an empty one") {
		t.Errorf("got %v, want it refused", err)
	}
}
