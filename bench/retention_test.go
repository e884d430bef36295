package main

import "testing"

// TestRetention wants old events deleted beside a small load, and figures for both kinds of phase.
func TestRetention(t *testing.T) {
	got := measured(t, "retention", "--events", "3000", "--rate", "200", "--phase", "1s", "--rounds", "1", "--pause", "-1s",
		"--database", server(t))
	wantPositive(t, got, "p50_without_ms", "p50_with_ms", "p99_without_ms", "p99_with_ms", "p99_ratio", "deleted_per_s")
	if got["deleted"] != 3000.0 || got["finished"] != true {
		t.Errorf("deleted %v, finished %v; want all 3000", got["deleted"], got["finished"])
	}
}
