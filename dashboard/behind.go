package dashboard

import (
	"errors"
	"net/http"
	"strconv"
	"strings"

	"github.com/pillarbox-dev/pillarbox/dashboard/access"
	"github.com/pillarbox-dev/pillarbox/ops"
)

// logPage is a part of the operators' log.
type logPage struct {
	Entries  []historyEntry
	Pages    pages
	Filter   ops.LogFilter
	Choices  []string
	Problems []string
}

// Any tells whether anything is restricted.
func (p logPage) Any() bool { return p.Filter != ops.LogFilter{} }

func (d *Dashboard) operatorLog(r *http.Request) (any, error) {
	query := r.URL.Query()
	p := logPage{Filter: ops.LogFilter{
		Operator: strings.TrimSpace(query.Get("operator")), Action: strings.TrimSpace(query.Get("action")),
		Destination: query.Get("destination"),
	}}
	var err error
	if text := strings.TrimSpace(query.Get("seq")); text != "" {
		if p.Filter.Seq, err = strconv.ParseInt(text, 10, 64); err != nil || p.Filter.Seq < 1 {
			p.Problems = append(p.Problems, "The number of an event is 1 or more.")
		}
	}
	if p.Choices, err = d.names(r.Context()); err != nil || len(p.Problems) > 0 {
		return p, err
	}
	found, err := d.config.Ops.Log(r.Context(), p.Filter, ops.Page{Limit: pageSize, After: query.Get("after")})
	if err != nil {
		return nil, err
	}
	m := d.maskFor(access.Who(r))
	for _, entry := range found.Entries {
		p.Entries = append(p.Entries, historyOf(entry, m))
	}
	p.Pages = pagesOf("/log", query, found.Next)
	return p, nil
}

// databasePage is how the database is, and how quick it is for this process.
type databasePage struct {
	ops.Health
	Latencies []Latency
	Known     bool // Latencies
}

func (d *Dashboard) database(r *http.Request) (any, error) {
	health, err := d.health.get(r.Context())
	if err != nil {
		return nil, err
	}
	p := databasePage{Health: health, Known: d.config.Latencies != nil}
	if p.Known {
		p.Latencies = d.config.Latencies()
	}
	return p, nil
}

// producersPage is what the Kafka producers of this process do.
type producersPage struct {
	Producers []Producer
	Known     bool
}

func (d *Dashboard) producers(*http.Request) (any, error) {
	p := producersPage{Known: d.config.Producers != nil}
	if p.Known {
		p.Producers = d.config.Producers()
	}
	return p, nil
}

// consumersPage is what has become of the events.
type consumersPage struct {
	Consumers []Consumer
	Asked     bool
}

func (d *Dashboard) consumerList(r *http.Request) (any, error) {
	found, err := d.consumers.get(r.Context())
	if errors.Is(err, errNobodyKnows) {
		return consumersPage{}, nil
	}
	return consumersPage{found, true}, err
}

// taskRow is a task with its last report made ready to be read.
type taskRow struct {
	ops.TaskStatus
	Report string
}

func (d *Dashboard) tasks(r *http.Request) (any, error) {
	tasks, err := d.config.Ops.Tasks(r.Context())
	if err != nil {
		return nil, err
	}
	m := d.maskFor(access.Who(r)) // a state may hold rows of the user's own queries
	var rows []taskRow
	for _, t := range tasks {
		rows = append(rows, taskRow{t, pretty(m.JSON(t.State))})
	}
	return rows, nil
}
