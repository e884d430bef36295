package telemetry

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pillarbox-dev/pillarbox/ops"
	"github.com/pillarbox-dev/pillarbox/relay"
)

func TestReadiness(t *testing.T) {
	old := func(age time.Duration) func(context.Context) (ops.Status, error) {
		return func(context.Context) (ops.Status, error) {
			return ops.Status{Destinations: []ops.DestinationStatus{
				{Destination: "a", OldestPendingAge: ops.Seconds(age)}, {Destination: "another's", OldestPendingAge: ops.Seconds(time.Hour)},
			}}, nil
		}
	}
	broken := func(context.Context) (ops.Status, error) { return ops.Status{}, errors.New("away") }
	for name, tt := range map[string]struct {
		unit   relay.UnitStatus
		maxAge time.Duration
		status func(context.Context) (ops.Status, error)
		want   string
	}{
		"leased":         {relay.UnitStatus{Alive: true, Leased: true}, 0, broken, ""},
		"standing by":    {relay.UnitStatus{Alive: true, Holder: "other"}, 0, broken, ""},
		"paused":         {relay.UnitStatus{Alive: true, Leased: true, Pause: relay.Pause{Reason: "r"}}, 0, broken, ""},
		"neither":        {relay.UnitStatus{Alive: true}, 0, broken, "destination a: neither leased nor standing by"},
		"stuck":          {relay.UnitStatus{Leased: true}, 0, broken, "destination a: its loop has not shown itself for a lease's time"},
		"a shard":        {relay.UnitStatus{Alive: true, Shard: relay.Shard{Number: 1, Of: 3}}, 0, broken, "destination a, shard 1 of 3: neither leased nor standing by"},
		"failed":         {relay.UnitStatus{Err: errors.New("log reset")}, 0, broken, "destination a: log reset"},
		"young enough":   {relay.UnitStatus{Alive: true, Leased: true}, time.Minute, old(time.Minute), ""},
		"too old":        {relay.UnitStatus{Alive: true, Leased: true}, time.Minute, old(2 * time.Minute), "destination a: the oldest pending event is 2m0s old, more than 1m0s"},
		"of unknown age": {relay.UnitStatus{Alive: true, Leased: true}, time.Minute, broken, "the age of pending events is not known: away"},
	} {
		tt.unit.Destination = "a"
		r := Readiness{
			Units:         func() []relay.UnitStatus { return []relay.UnitStatus{tt.unit} },
			Status:        NewStatusCache(tt.status, slog.New(slog.DiscardHandler)),
			MaxPendingAge: tt.maxAge,
		}
		if got := strings.Join(r.Problems(), "; "); got != tt.want {
			t.Errorf("%s: problems = %q, want %q", name, got, tt.want)
		}
	}
}

func TestHandler(t *testing.T) {
	m := newMetrics(func(context.Context) (ops.Status, error) { return ops.Status{}, nil })
	registry := prometheus.NewRegistry()
	registry.MustRegister(m)
	unit := relay.UnitStatus{Destination: "a"}
	server := httptest.NewServer(Handler(registry, Readiness{Units: func() []relay.UnitStatus { return []relay.UnitStatus{unit} }}))
	defer server.Close()
	get := func(path string) (int, string) {
		t.Helper()
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		answer, err := server.Client().Do(request)
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		body, err := io.ReadAll(answer.Body)
		if err != nil {
			t.Fatal(err)
		}
		return answer.StatusCode, string(body)
	}
	if status, body := get("/healthz"); status != 200 || body != "ok\n" {
		t.Errorf("/healthz = %d %q, want 200 ok", status, body)
	}
	if status, body := get("/readyz"); status != 503 || !strings.Contains(body, "destination a:") {
		t.Errorf("/readyz = %d %q, want 503 and why", status, body)
	}
	unit.Alive, unit.Leased = true, true
	if status, body := get("/readyz"); status != 200 || body != "ok\n" {
		t.Errorf("/readyz = %d %q, want 200 ok", status, body)
	}
	if status, body := get("/metrics"); status != 200 || !strings.Contains(body, `outbox_publish_success_total{destination="a"} 0`) {
		t.Errorf("/metrics = %d %q, want the metrics", status, body)
	}
	if status, _ := get("/"); status != 404 {
		t.Errorf("/ = %d, want 404", status)
	}
}
