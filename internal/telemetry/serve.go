package telemetry

import (
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/pillarbox-dev/pillarbox/relay"
)

// Handler serves /healthz, /readyz and /metrics.
func Handler(metrics prometheus.Gatherer, ready Readiness) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { answer(w, nil) })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) { answer(w, ready.Problems()) })
	mux.Handle("GET /metrics", promhttp.HandlerFor(metrics, promhttp.HandlerOpts{MaxRequestsInFlight: 4}))
	return mux
}

func answer(w http.ResponseWriter, problems []string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	if len(problems) > 0 {
		w.WriteHeader(http.StatusServiceUnavailable)
		_, _ = fmt.Fprintln(w, strings.Join(problems, "\n"))
		return
	}
	_, _ = fmt.Fprintln(w, "ok")
}

// NewServer returns a server with a limit on everything that a client may take: time, header, connections that idle.
func NewServer(handler http.Handler) *http.Server {
	return &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       10 * time.Second,
		WriteTimeout:      30 * time.Second,
		IdleTimeout:       time.Minute,
		MaxHeaderBytes:    16 << 10,
	}
}

// Readiness says whether a relay does its work.
type Readiness struct {
	Units func() []relay.UnitStatus
	// Status is asked when there is a MaxPendingAge: how old the oldest event that is not delivered may be.
	Status        *StatusCache
	MaxPendingAge time.Duration
}

// Problems returns why it does not; none: it does. A destination that is paused, or that another relay works on, is no problem.
func (r Readiness) Problems() (problems []string) {
	bad := func(where, format string, args ...any) {
		problems = append(problems, "destination "+where+": "+fmt.Sprintf(format, args...))
	}
	mine := map[string]bool{}
	for _, unit := range r.Units() {
		mine[unit.Destination] = true
		where := unit.Destination
		if !unit.Shard.Whole() {
			where += ", shard " + unit.Shard.String()
		}
		switch {
		case unit.Err != nil:
			bad(where, "%v", unit.Err)
		case !unit.Alive:
			bad(where, "its loop has not shown itself for a lease's time")
		case !unit.Leased && unit.Holder == "":
			bad(where, "neither leased nor standing by")
		}
	}
	if r.MaxPendingAge <= 0 {
		return problems
	}
	status, err := r.Status.Get()
	if err != nil {
		return append(problems, fmt.Sprintf("the age of pending events is not known: %v", err))
	}
	for _, d := range status.Destinations {
		if age := time.Duration(d.OldestPendingAge); mine[d.Destination] && age > r.MaxPendingAge {
			bad(d.Destination, "the oldest pending event is %v old, more than %v", age.Round(time.Second), r.MaxPendingAge)
		}
	}
	return problems
}
