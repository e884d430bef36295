// Package api lets programs do over HTTP what operators do: look at an outbox, retry, discard and repair, run jobs, pause and
// resume. Everything goes through package ops; here is only what HTTP asks for.
//
//	request → route → parameters and body → ops → JSON, or a problem (RFC 9457)
//
// The whole API is described in openapi.yaml, which is served as /api/v1/openapi.json. Who may use it is for package access.
package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/pillarbox-dev/pillarbox/dashboard/access"
	"github.com/pillarbox-dev/pillarbox/dashboard/mask"
	"github.com/pillarbox-dev/pillarbox/ops"
	"github.com/pillarbox-dev/pillarbox/relay"
)

// Prefix is where the API is mounted.
const Prefix = "/api/v1"

// timeout bounds what a request may ask of the database. It lies below the server's write timeout.
const timeout = 20 * time.Second

// Config is what the API works on. Only Ops is required.
type Config struct {
	Ops *ops.Ops
	// Destinations are the names of the configuration: those that no relay has worked on yet are told as well.
	Destinations []string
	// Owner and Units are the name in leases and the units of this process's relay. Default: it has none.
	Owner string
	Units func() []relay.UnitStatus
	// Mask hides fields of payloads and headers from viewers, and with MaskOperators from operators as well. Default: nothing.
	Mask          *mask.Mask
	MaskOperators bool
	// Log takes what went wrong inside. Default slog.Default.
	Log *slog.Logger
}

type api struct{ Config }

// New returns the API. It serves paths that begin with Prefix, to whoever package access has let in.
func New(c Config) http.Handler {
	if c.Units == nil {
		c.Units = func() []relay.UnitStatus { return nil }
	}
	if c.Log == nil {
		c.Log = slog.Default()
	}
	a := &api{c}
	mux := http.NewServeMux()
	methods := map[string][]string{}
	for _, r := range a.routes() {
		mux.Handle(r.method+" "+Prefix+r.path, a.handler(r))
		methods[r.path] = append(methods[r.path], r.method)
	}
	for path, allowed := range methods {
		mux.Handle(Prefix+path, wrongMethod(allowed))
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		problem{Status: http.StatusNotFound, Type: "not-found", Detail: "the API has no such path",
			Hint: "see " + Prefix + "/openapi.json"}.write(w)
	})
	return mux
}

// route is one operation. Those that do not read are for operators.
type route struct {
	method, path string
	do           func(*call) (any, error)
}

func (a *api) routes() []route {
	const delivery = "/destinations/{destination}/deliveries/{seq}"
	return []route{
		{"GET", "/status", a.status},
		{"GET", "/events", a.listEvents},
		{"GET", "/events/{ref}", a.showEvent},
		{"POST", delivery + "/retry", a.retry},
		{"POST", delivery + "/discard", a.discard},
		{"POST", delivery + "/repair", a.repair},
		{"GET", "/log", a.listLog},
		{"GET", "/jobs", a.listJobs},
		{"POST", "/jobs", a.startJob},
		{"GET", "/jobs/{id}", a.showJob},
		{"POST", "/jobs/{id}/pause", a.changeJob(a.Ops.PauseJob)},
		{"POST", "/jobs/{id}/resume", a.changeJob(a.Ops.ResumeJob)},
		{"POST", "/jobs/{id}/cancel", a.changeJob(a.Ops.CancelJob)},
		{"GET", "/destinations/{destination}/recent", a.recent},
		{"POST", "/destinations/{destination}/pause", a.pause},
		{"POST", "/destinations/{destination}/resume", a.resume},
		{"GET", "/relays", a.relays},
		{"GET", "/health", a.health},
		{"GET", "/tasks", a.tasks},
		{"GET", "/openapi.json", a.document},
	}
}

// call is one request on its way.
type call struct {
	*http.Request
	who access.Identity
	w   http.ResponseWriter
}

// created is the answer to a request that made something.
type created struct {
	at   string
	what any
}

func (a *api) handler(route route) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), timeout)
		defer cancel()
		c := &call{Request: r.WithContext(ctx), who: access.Who(r), w: w}
		var answer any
		err := c.allowed(route)
		if err == nil {
			answer, err = route.do(c)
		}
		if err != nil {
			a.fail(c, err)
			return
		}
		if made, ok := answer.(created); ok {
			w.Header().Set("Location", Prefix+made.at)
			write(w, http.StatusCreated, "application/json", made.what)
			return
		}
		write(w, http.StatusOK, "application/json", answer)
	})
}

// allowed refuses what the role is not enough for. Access has let the request in; without it nobody may anything.
func (c *call) allowed(r route) error {
	switch {
	case c.who.Role == "":
		return problem{Status: http.StatusUnauthorized, Type: "unauthorized", Detail: "nobody is logged in",
			Hint: "send a token: Authorization: Bearer …"}
	case r.method != http.MethodGet && !c.who.MayOperate():
		return problem{Status: http.StatusForbidden, Type: "forbidden", Detail: c.who.Name + " may look and not act",
			Hint: "use a credential with the role operator"}
	}
	return nil
}

func wrongMethod(allowed []string) http.Handler {
	if slices.Contains(allowed, http.MethodGet) {
		allowed = append(allowed, http.MethodHead)
	}
	slices.Sort(allowed)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Allow", strings.Join(allowed, ", "))
		problem{Status: http.StatusMethodNotAllowed, Type: "method-not-allowed", Detail: r.Method + " is not for this path",
			Hint: "use " + strings.Join(allowed, " or ")}.write(w)
	})
}

// write answers. Payloads keep their text, white space apart.
func write(w http.ResponseWriter, status int, contentType string, answer any) {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(answer); err != nil { // what the database holds as JSON is JSON
		status = http.StatusInternalServerError
		text.Reset()
		text.WriteString(`{"status":500}`)
	}
	w.Header().Set("Content-Type", contentType)
	w.WriteHeader(status)
	_, _ = w.Write(text.Bytes())
}

// fail answers with the problem that an error is.
func (a *api) fail(c *call, err error) {
	if errors.Is(err, context.Canceled) && c.Context().Err() != nil {
		return // nobody waits for the answer
	}
	p, known := problemOf(err)
	if !known {
		a.Log.Error("a request to the API failed", "method", c.Method, "path", c.URL.Path, "error", err)
	}
	p.write(c.w)
}

// maskFor is what is hidden from whoever asks.
func (a *api) maskFor(who access.Identity) *mask.Mask {
	if who.MayOperate() && !a.MaskOperators {
		return nil
	}
	return a.Mask
}

// unstarted are the destinations that no relay has worked on yet.
func (a *api) unstarted(now ops.Status) []string {
	names := slices.Clone(a.Destinations)
	slices.Sort(names)
	return slices.DeleteFunc(append([]string{}, names...), func(name string) bool {
		return slices.ContainsFunc(now.Destinations, func(d ops.DestinationStatus) bool { return d.Destination == name })
	})
}
