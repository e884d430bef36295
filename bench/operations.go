package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"html"
	"io"
	"log/slog"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/pillarbox-dev/pillarbox/internal/config"
	"github.com/pillarbox-dev/pillarbox/internal/wire"
	"github.com/pillarbox-dev/pillarbox/ops"
	"github.com/pillarbox-dev/pillarbox/outbox/schema"
)

// operations measures what it costs to look at an outbox in which much has gathered: a destination that is paused, with a backlog
// above its cursor, a full ledger below it, and thousands of failed and quarantined deliveries.
//
// The pages are those that a browser gets to from the first one, and the paths of the API; each is asked for by itself.
type operations struct {
	pending, ledger, quarantined, failed int
	pages                                int
	report                               report
}

func operationsFlags(flags *flag.FlagSet) measurement {
	var o operations
	flags.IntVar(&o.pending, "pending", 10_000_000, "how many events wait above the cursor")
	flags.IntVar(&o.ledger, "ledger", 1_000_000, "how many deliveries the ledger holds")
	flags.IntVar(&o.quarantined, "quarantined", 100_000, "how many of them are quarantined")
	flags.IntVar(&o.failed, "failed", 1000, "how many of them have failed and are to be tried again")
	flags.IntVar(&o.pages, "pages", 80, "how many pages of the dashboard at most")
	return o.measure
}

func (o *operations) measure(ctx context.Context, s *session) (_ *report, err error) {
	if o.pending < 1 || o.quarantined < 1 || o.failed < 1 || o.ledger < o.quarantined+o.failed || o.pages < 1 {
		return nil, errors.New("--pending, --quarantined, --failed and --pages must be at least 1, and --ledger at least the second and " +
			"the third together")
	}
	log, err := s.newLog(ctx, "operations", o.ledger+o.pending)
	if err != nil {
		return nil, err
	}
	defer log.pool.Close()
	s.say("fill a ledger with %s deliveries", formatNumber(float64(o.ledger)))
	if err := o.fillLedger(ctx, log.pool); err != nil {
		return nil, err
	}
	site, stop, err := o.serve(ctx, log)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, stop()) }()
	for n := range s.rounds {
		s.say("round %d of %d", n+1, s.rounds)
		if err := o.round(ctx, s, log, site); err != nil {
			return nil, err
		}
	}
	r := &o.report
	r.want("page_max_ms", atMost(300))
	r.want("api_max_ms", atMost(300))
	r.want("status_ms", atMost(300))
	r.want("scrape_database_ms", atMost(20))
	r.note("pending", o.pending)
	r.note("ledger", o.ledger)
	r.note("quarantined", o.quarantined)
	r.note("failed", o.failed)
	return r, nil
}

// fillLedger spreads what is not published evenly over the ledger, and pauses the destination.
func (o *operations) fillLedger(ctx context.Context, pool *pgxpool.Pool) error {
	const rows = `
insert into outbox_delivery (destination, seq, status, attempt_count, published_at, receipt, next_attempt_at, last_attempt_at, endpoint,
                             partition_key, last_error_code, last_error_message)
select $1, e.seq, k.status,
       case k.status when 'PUBLISHED' then 1 else 3 end,
       case k.status when 'PUBLISHED' then e.created_at + interval '3 milliseconds' end,
       case k.status when 'PUBLISHED' then '200' end,
       case k.status when 'FAILED' then now() + interval '1 hour' end,
       case k.status when 'PUBLISHED' then null else e.created_at + interval '1 second' end,
       case k.status when 'PUBLISHED' then null else '' end,
       case k.status when 'FAILED' then e.partition_key end,
       case k.status when 'FAILED' then 'HTTP_503' when 'QUARANTINED' then 'HTTP_422' end,
       case k.status when 'PUBLISHED' then null else 'no such supplier' end
  from (select seq, created_at, partition_key, row_number() over (order by seq) as n from outbox_event order by seq limit $2) e
  cross join lateral (select case when e.n % $3 = 1 then 'QUARANTINED' when e.n % $4 = 2 then 'FAILED' else 'PUBLISHED' end as status) k`
	const cursor = `
insert into outbox_cursor (destination, position, in_flight_to, acquired_position, paused_at, paused_reason, paused_by)
select $1, max(seq), max(seq), max(seq), now(), 'the benchmark', 'bench' from outbox_delivery`
	if _, err := pool.Exec(ctx, rows, destinationName, o.ledger, o.ledger/o.quarantined, o.ledger/o.failed); err != nil {
		return fmt.Errorf("fill the ledger: %w", err)
	}
	if _, err := pool.Exec(ctx, cursor, destinationName); err != nil {
		return fmt.Errorf("make the cursor: %w", err)
	}
	return tidy(ctx, pool, "outbox_delivery")
}

// serve runs what `pillarbox run` runs, and returns its address.
func (o *operations) serve(ctx context.Context, log *eventLog) (site string, stop func() error, err error) {
	text := fmt.Sprintf(`
database: {url: "%s"}
listen: 127.0.0.1:0
destinations:
  %s: {http: {url: "http://127.0.0.1:9/", allow_private: true}}
`, log.url, destinationName)
	c, err := config.Parse("bench", []byte(text), os.LookupEnv)
	if err != nil {
		return "", nil, err
	}
	process, err := wire.NewProcess(ctx, c, slog.New(slog.DiscardHandler))
	if err != nil {
		return "", nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- process.Run(ctx) }()
	return "http://" + process.Addr, func() error {
		cancel()
		err := <-done
		process.Close()
		return err
	}, nil
}

func (o *operations) round(ctx context.Context, s *session, log *eventLog, site string) error {
	if err := o.status(ctx, s, log); err != nil {
		return err
	}
	pages, err := o.crawl(ctx, site)
	if err != nil {
		return err
	}
	o.add(s, "page", pages)
	var paths []visit
	for _, path := range []string{"status", "events", "events?status=QUARANTINED", "events?status=PENDING", "events?status=PUBLISHED",
		"events?status=FAILED", "events?partition_key=case-17", "events?aggregate_id=case-17", "jobs", "log", "relays", "health"} {
		v, _, err := get(ctx, site+"/api/v1/"+path)
		if err != nil {
			return err
		}
		paths = append(paths, v)
	}
	o.add(s, "api", paths)
	return nil
}

// status measures ops.Status by itself, which is all that a scrape asks of the database; the processor time is the server's.
func (o *operations) status(ctx context.Context, s *session, log *eventLog) error {
	db := stdlib.OpenDBFromPool(log.pool)
	defer db.Close()
	look, err := ops.New(db, schema.Postgres, "public")
	if err != nil {
		return err
	}
	const times = 20
	before, err := s.cpu()
	if err != nil {
		return err
	}
	start := time.Now()
	for range times {
		if _, err := look.Status(ctx); err != nil {
			return err
		}
	}
	took := time.Since(start)
	after, err := s.cpu()
	o.report.add("status_ms", milliseconds(took)/times)
	o.report.add("scrape_database_ms", milliseconds(after.since(before).server)/times)
	return err
}

// visit is one page and how long it took.
type visit struct {
	path string
	took time.Duration
}

func (o *operations) add(s *session, what string, visits []visit) {
	slices.SortFunc(visits, func(a, b visit) int { return int(b.took - a.took) })
	times := make([]time.Duration, len(visits))
	for i, v := range visits {
		times[len(visits)-1-i] = v.took
	}
	o.report.add(what+"_p50_ms", milliseconds(percentile(times, 0.5)))
	o.report.add(what+"_max_ms", milliseconds(visits[0].took))
	for _, v := range visits[:min(3, len(visits))] {
		s.say("%d of %s: %.0f ms %s", len(visits), what, milliseconds(v.took), v.path)
	}
}

// crawl follows the links from the first page on, in the order in which they are found.
func (o *operations) crawl(ctx context.Context, site string) ([]visit, error) {
	var visits []visit
	queue, known := []string{"/"}, map[string]bool{"/": true}
	for ; len(queue) > 0 && len(visits) < o.pages; queue = queue[1:] {
		v, body, err := get(ctx, site+queue[0])
		if err != nil {
			return nil, err
		}
		visits = append(visits, v)
		for _, link := range links(body) {
			if !known[link] && followed(link) {
				known[link] = true
				queue = append(queue, link)
			}
		}
	}
	if len(visits) < 5 {
		return nil, fmt.Errorf("the measurement is void: only %d pages were found", len(visits))
	}
	return visits, nil
}

var href = regexp.MustCompile(`href="(/[^"#]*)"`)

func links(body string) (paths []string) {
	for _, found := range href.FindAllStringSubmatch(body, -1) {
		paths = append(paths, html.UnescapeString(found[1]))
	}
	return paths
}

// followed leaves out what is no page of the dashboard.
func followed(path string) bool {
	for _, other := range []string{"/static/", "/api/", "/metrics", "/healthz", "/readyz", "/live", "/logout", "/login"} {
		if strings.HasPrefix(path, other) {
			return false
		}
	}
	return true
}

func get(ctx context.Context, url string) (v visit, body string, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return v, "", err
	}
	start := time.Now()
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return v, "", err
	}
	defer response.Body.Close()
	data, err := io.ReadAll(response.Body)
	v = visit{request.URL.RequestURI(), time.Since(start)}
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", v.path, response.Status)
	}
	return v, string(data), err
}
