// Package dashboard shows an outbox in a browser and lets operators act on it. Its pages are made on the server and work without
// JavaScript, for reading and for acting; a small script only keeps them up to date.
//
//	transaction → log → lanes → destination → outcome → settle
//	              └────────── ops ──────────┘
//	                           ↑ looked at and steered from the pages
//
// Everything that it knows of the database comes from package ops, and every action goes through it. What only the process knows
// (its units, its producers) comes from functions in Config; a page without its function says so.
package dashboard

import (
	"context"
	"embed"
	"errors"
	"html/template"
	"io/fs"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/pillarbox-dev/pillarbox/dashboard/access"
	"github.com/pillarbox-dev/pillarbox/dashboard/mask"
	"github.com/pillarbox-dev/pillarbox/ops"
	"github.com/pillarbox-dev/pillarbox/relay"
)

// Config is what a dashboard shows. Only Ops is required.
type Config struct {
	Ops *ops.Ops
	// Title stands at the top of every page. Default "Pillarbox".
	Title string
	// Base is the path that the dashboard is mounted at, like "/outbox". Default "": the root. The handler is given whole paths.
	Base string
	// Destinations are the names of the configuration: those that no relay has worked on yet are shown as well.
	Destinations []string
	// Owner is the name of this process in leases.
	Owner string
	// Units are those of this process's relay (relay.Relay.Status). Default: this process has none.
	Units func() []relay.UnitStatus
	// Endpoints lists where one destination goes. Default: what stands in outbox_endpoint (ops.Ops.Endpoints).
	Endpoints func(ctx context.Context, destination string) ([]ops.Endpoint, error)
	// Latencies are how long this process's reads and settles take.
	Latencies func() []Latency
	// Producers are the Kafka producers of this process.
	Producers func() []Producer
	// Consumers ask what has become of the events behind the destinations. It is called at most every ten seconds.
	Consumers func(context.Context) ([]Consumer, error)
	// Access decides who comes in. Default: this machine alone, as an operator, unless another Access wraps the dashboard.
	Access *access.Access
	// Mask hides fields of payloads and headers from viewers, and with MaskOperators from operators as well. Default: nothing.
	Mask          *mask.Mask
	MaskOperators bool
	// Logger gets what went wrong inside. Default: slog.Default.
	Logger *slog.Logger
}

// Dashboard is a http.Handler. See New.
type Dashboard struct {
	config    Config
	templates map[string]*template.Template
	pages     *http.ServeMux // what can be read, which /live reads as well
	inner     http.Handler   // for requests that access has let in
	guarded   http.Handler
	now       func() time.Time

	status    *remembered[ops.Status]
	health    *remembered[ops.Health]
	consumers *remembered[[]Consumer]
	recent    *recents
	samples   *samples
	streams   chan struct{} // a place for each live page
	ended     chan struct{} // closed when Run ends
}

// How long the database's answers are good for, however many look at them.
const (
	statusFor    = 2 * time.Second
	recentFor    = 5 * time.Second
	healthFor    = 10 * time.Second
	consumersFor = 10 * time.Second
	sampleEvery  = 5 * time.Second
	samplesKept  = 15 * time.Minute
	lookTimeout  = 5 * time.Second // for everything that a page asks
)

//go:embed templates/*.html
var templateFiles embed.FS

//go:embed static
var staticFiles embed.FS

// New returns a dashboard. It can be served at once; Run keeps its charts going while nobody looks, and ends its live pages.
// Its answers carry the headers of package access, which decides who may see and do what.
func New(c Config) *Dashboard {
	if c.Title == "" {
		c.Title = "Pillarbox"
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	if c.Endpoints == nil {
		c.Endpoints = c.Ops.Endpoints
	}
	c.Base = strings.TrimSuffix(c.Base, "/")
	if c.Access == nil {
		c.Access, _ = access.New(access.Config{Base: c.Base, Log: c.Logger}) // without a credential nothing can be wrong
	}
	d := &Dashboard{
		config: c, pages: http.NewServeMux(), now: time.Now,
		samples: newSamples(int(samplesKept / sampleEvery)),
		streams: make(chan struct{}, maxStreams), ended: make(chan struct{}),
	}
	d.status = remember(statusFor, d.look)
	d.health = remember(healthFor, c.Ops.Health)
	d.recent = newRecents(recentFor, c.Ops.Recent)
	d.consumers = remember(consumersFor, c.Consumers)
	d.templates = parseTemplates(d.functions())
	d.route()
	return d
}

func (d *Dashboard) route() {
	static, err := fs.Sub(staticFiles, "static")
	if err != nil {
		panic(err) // the folder is embedded
	}
	d.readable()
	all := http.NewServeMux()
	all.Handle("GET /", d.pages)
	all.Handle("GET /static/", http.StripPrefix("/static", cached(http.FileServerFS(static))))
	all.HandleFunc("GET /live", d.live)
	d.actions(all)
	d.inner = http.StripPrefix(d.config.Base, all)
	d.guarded = http.StripPrefix(d.config.Base, d.config.Access.Wrap(all))
}

// ServeHTTP implements http.Handler.
func (d *Dashboard) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if access.Who(r) != (access.Identity{}) {
		d.inner.ServeHTTP(w, r)
		return
	}
	d.guarded.ServeHTTP(w, r)
}

// Run takes a sample for the charts every few seconds until the context ends, and then ends all live pages, so that the server
// can shut down. It is to be called at most once. Without it, samples are taken only while somebody looks.
func (d *Dashboard) Run(ctx context.Context) {
	defer close(d.ended)
	tick := time.NewTicker(sampleEvery)
	defer tick.Stop()
	for {
		_, _ = d.status.get(ctx) // an error has been logged
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// look asks the database for the status, and keeps a sample of it.
func (d *Dashboard) look(ctx context.Context) (ops.Status, error) {
	status, err := d.config.Ops.Status(ctx)
	if err != nil {
		if !errors.Is(err, context.Canceled) {
			d.config.Logger.Warn("the dashboard cannot look at the outbox", "error", err)
		}
		return status, err
	}
	d.samples.add(d.now(), status)
	return status, nil
}

func cached(files http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "private, max-age=3600")
		files.ServeHTTP(w, r)
	})
}
