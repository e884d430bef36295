package telemetry

import (
	"context"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pillarbox-dev/pillarbox/ops"
)

// ReconcileMetrics tell what the scheduled reconciliation has found the last time, whichever process ran it. They are a
// prometheus.Collector. While the database does not answer there are none. The time of the last success is 0 while there was none: an
// alert on it is to hear of a check that was broken from the beginning, and of a reconciliation that never runs.
type ReconcileMetrics struct {
	checks            []string
	last              *cache[ops.ReconcileState]
	findings, success *prometheus.Desc
}

var _ prometheus.Collector = (*ReconcileMetrics)(nil)

// NewReconcileMetrics returns metrics for the checks of these names. look is Ops.LastReconciliation; the logger gets its errors.
func NewReconcileMetrics(
	checks []string, look func(context.Context) (ops.ReconcileState, error), logger *slog.Logger,
) *ReconcileMetrics {
	return &ReconcileMetrics{
		checks: checks,
		last:   &cache[ops.ReconcileState]{look: look, logger: logger, what: "the last reconciliation"},
		findings: prometheus.NewDesc("outbox_reconcile_findings",
			"What the last reconciliation has found, by check. Counted up to a limit.", []string{"check"}, nil),
		success: prometheus.NewDesc("outbox_reconcile_last_success_timestamp_seconds",
			"When every check of the reconciliation could be made the last time, whatever it found; 0: never.", nil, nil),
	}
}

// Describe implements prometheus.Collector.
func (m *ReconcileMetrics) Describe(out chan<- *prometheus.Desc) {
	out <- m.findings
	out <- m.success
}

// Collect implements prometheus.Collector.
func (m *ReconcileMetrics) Collect(out chan<- prometheus.Metric) {
	if len(m.checks) == 0 {
		return
	}
	state, err := m.last.Get()
	if err != nil {
		return
	}
	success := 0.0
	if !state.LastSuccess.IsZero() {
		success = float64(state.LastSuccess.UnixMilli()) / 1000
	}
	out <- prometheus.MustNewConstMetric(m.success, prometheus.GaugeValue, success)
	if state.Report.At.IsZero() {
		return
	}
	found := map[string]int64{}
	for _, f := range state.Report.Findings {
		found[f.Check] = f.Count
	}
	for _, check := range m.checks {
		if _, failed := state.Report.Errors[check]; failed && found[check] == 0 {
			continue // nobody knows
		}
		out <- prometheus.MustNewConstMetric(m.findings, prometheus.GaugeValue, float64(found[check]), check)
	}
}
