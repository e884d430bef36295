package deploytest

import (
	"context"
	"encoding/json"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"go.yaml.in/yaml/v3"

	"github.com/pillarbox-dev/pillarbox/internal/telemetry"
	"github.com/pillarbox-dev/pillarbox/ops"
	"github.com/pillarbox-dev/pillarbox/relay"
)

const deploy = "../../deploy/"

// exported returns the metrics of the program with their labels, as they describe themselves.
func exported(t *testing.T) map[string]string {
	t.Helper()
	never := func(context.Context) (ops.Status, error) { return ops.Status{}, nil }
	log := slog.New(slog.DiscardHandler)
	all := map[string]string{}
	described := regexp.MustCompile(`^Desc{fqName: "([^"]+)".*variableLabels: {([^}]*)}}$`)
	for _, collector := range []prometheus.Collector{
		telemetry.NewMetrics(telemetry.MetricsConfig{
			Destinations: []string{"d"}, Status: telemetry.NewStatusCache(never, log), Units: func() []relay.UnitStatus { return nil },
		}),
		telemetry.NewKafkaMetrics(),
		telemetry.NewReconcileMetrics([]string{"ledger"}, nil, log),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	} {
		descriptions := make(chan *prometheus.Desc)
		go func() { collector.Describe(descriptions); close(descriptions) }()
		for d := range descriptions {
			parts := described.FindStringSubmatch(d.String())
			if parts == nil {
				t.Fatalf("cannot read %s", d)
			}
			all[parts[1]] = parts[2]
		}
	}
	return all
}

// The names of the design, each with its label.
func TestMetricsOfTheDesign(t *testing.T) {
	all := exported(t)
	for _, name := range []string{
		"outbox_pending_count", "outbox_oldest_pending_age_seconds", "outbox_publish_success_total", "outbox_quarantined_count",
		"outbox_publish_latency_ms", "kafka_producer_send_latency_ms", "kafka_producer_error_total", "outbox_commit_to_publish_latency_ms",
		"outbox_possible_duplicate_total", "outbox_lease_lost_total", "outbox_breaker_open", "outbox_settle_latency_ms", "outbox_read_latency_ms",
	} {
		if labels, there := all[name]; !there || labels != "destination" {
			t.Errorf("%s: there %v, labels %q, want it with destination", name, there, labels)
		}
	}
	for name, want := range map[string]string{
		"outbox_publish_failure_total": "destination,code", "outbox_reconcile_findings": "check",
		"outbox_reconcile_last_success_timestamp_seconds": "",
	} {
		if labels, there := all[name]; !there || labels != want {
			t.Errorf("%s: there %v, labels %q, want %q", name, there, labels, want)
		}
	}
}

var metricName = regexp.MustCompile(`\b(?:outbox|kafka|process|go)_[a-z0-9_]+`)

// unknown returns the names in an expression that the program does not export.
func unknown(expression string, all map[string]string) (names []string) {
	for _, name := range metricName.FindAllString(expression, -1) {
		base := name
		for _, suffix := range []string{"_bucket", "_sum", "_count"} {
			if cut, ok := strings.CutSuffix(name, suffix); ok && all[name] == "" {
				if _, there := all[cut]; there {
					base = cut
				}
			}
		}
		if _, there := all[base]; !there {
			names = append(names, name)
		}
	}
	return names
}

func TestUnknownIsFound(t *testing.T) {
	all := map[string]string{"outbox_settle_latency_ms": "destination", "outbox_pending_count": "destination"}
	got := unknown(`rate(outbox_settle_latency_ms_bucket[5m]) + outbox_pending_count + outbox_pending_counts + kafka_lag`, all)
	if want := []string{"outbox_pending_counts", "kafka_lag"}; !slices.Equal(got, want) {
		t.Errorf("unknown = %q, want %q", got, want)
	}
}

// rules are the groups of a file of rules.
type rules struct {
	Groups []struct {
		Name  string `yaml:"name"`
		Rules []rule `yaml:"rules"`
	} `yaml:"groups"`
}

type rule struct {
	Alert       string            `yaml:"alert,omitempty"`
	Expr        string            `yaml:"expr"`
	For         string            `yaml:"for,omitempty"`
	Record      string            `yaml:"record,omitempty"`
	Labels      map[string]string `yaml:"labels,omitempty"`
	Annotations map[string]string `yaml:"annotations,omitempty"`
}

func readRules(t *testing.T) []rule {
	t.Helper()
	var file rules
	readYAML(t, deploy+"prometheus/pillarbox.rules.yml", &file)
	var all []rule
	for _, g := range file.Groups {
		all = append(all, g.Rules...)
	}
	if len(all) < 10 {
		t.Fatalf("only %d rules", len(all))
	}
	return all
}

func readYAML(t *testing.T, name string, into any) {
	t.Helper()
	text, err := os.ReadFile(name)
	if err == nil {
		err = yaml.Unmarshal(text, into)
	}
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
}

// promtool is part of Prometheus. It is not skipped where it is missing.
func promtool(t *testing.T, dir string, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "promtool", args...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("promtool %s: %v (apt-get install prometheus has it)\n%s", strings.Join(args, " "), err, out)
	}
}

func TestAlerts(t *testing.T) {
	promtool(t, deploy+"prometheus", "check", "rules", "pillarbox.rules.yml")
	promtool(t, deploy+"prometheus", "test", "rules", "pillarbox.test.yml")
	all := exported(t)
	tests, err := os.ReadFile(deploy + "prometheus/pillarbox.test.yml")
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range readRules(t) {
		if names := unknown(r.Expr, all); len(names) > 0 {
			t.Errorf("%s: the program does not export %q", r.Alert, names)
		}
		if s := r.Labels["severity"]; s != "page" && s != "ticket" {
			t.Errorf("%s: severity %q, want page or ticket", r.Alert, s)
		}
		runbook := "../../docs/runbooks/" + filepath.Base(r.Annotations["runbook_url"])
		if _, err := os.Stat(runbook); err != nil {
			t.Errorf("%s: its runbook: %v", r.Alert, err)
		}
		if fires := regexp.MustCompile(`alertname: ` + r.Alert + `\n\s+exp_alerts:\n\s+- exp_labels`); !fires.Match(tests) {
			t.Errorf("%s: no test lets it fire", r.Alert)
		}
		if !strings.Contains(string(tests), "eval_time: 45m, alertname: "+r.Alert+", exp_alerts: []") {
			t.Errorf("%s: no test has it silent while all is well", r.Alert)
		}
	}
}

// dashboard is what is looked at of Grafana's model.
type dashboard struct {
	UID    string  `json:"uid"`
	Title  string  `json:"title"`
	Panels []panel `json:"panels"`
}

type panel struct {
	ID          int    `json:"id"`
	Type        string `json:"type"`
	Title       string `json:"title"`
	Description string `json:"description"`
	GridPos     struct{ H, W, X, Y int }
	Targets     []struct{ Expr string }
}

func (p panel) overlaps(q panel) bool {
	a, b := p.GridPos, q.GridPos
	return a.X < b.X+b.W && b.X < a.X+a.W && a.Y < b.Y+b.H && b.Y < a.Y+a.H
}

func TestGrafana(t *testing.T) {
	text, err := os.ReadFile(deploy + "grafana/pillarbox.json")
	if err != nil {
		t.Fatal(err)
	}
	var d dashboard
	if err := json.Unmarshal(text, &d); err != nil {
		t.Fatal(err)
	}
	if d.UID == "" || d.Title == "" || len(d.Panels) < 20 {
		t.Fatalf("%q (%s) has %d panels", d.Title, d.UID, len(d.Panels))
	}
	all, used := exported(t), string(text)
	var recorded []rule
	for i, p := range d.Panels {
		if p.Type != "row" && (len(p.Targets) == 0 || p.Description == "") {
			t.Errorf("panel %q has %d targets and the description %q", p.Title, len(p.Targets), p.Description)
		}
		for _, q := range d.Panels[:i] {
			if p.ID == q.ID || p.overlaps(q) {
				t.Errorf("panels %q and %q have the same id, or the same place", p.Title, q.Title)
			}
		}
		for _, target := range p.Targets {
			if names := unknown(target.Expr, all); len(names) > 0 {
				t.Errorf("panel %q: the program does not export %q", p.Title, names)
			}
			expression := strings.NewReplacer("$__rate_interval", "5m", "$destination", "d").Replace(target.Expr)
			recorded = append(recorded, rule{Record: "panel", Expr: expression})
		}
	}
	for name := range all {
		if strings.HasPrefix(name, "outbox_") && !strings.Contains(used, name) {
			t.Errorf("no panel shows %s", name)
		}
	}
	checkExpressions(t, recorded)
}

// checkExpressions lets promtool parse the expressions of the panels, as rules that record them.
func checkExpressions(t *testing.T, recorded []rule) {
	t.Helper()
	for i := range recorded {
		recorded[i].Labels = map[string]string{"n": string(rune('a'+i%26)) + string(rune('a'+i/26))} // promtool refuses rules that are alike
	}
	group := map[string]any{"groups": []any{map[string]any{"name": "panels", "rules": recorded}}}
	text, err := yaml.Marshal(group)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "panels.yml"), text, 0o600); err != nil {
		t.Fatal(err)
	}
	promtool(t, dir, "check", "rules", "panels.yml")
}
