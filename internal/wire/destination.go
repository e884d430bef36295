package wire

import (
	"context"
	"database/sql"
	"fmt"
	"log/slog"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/pillarbox-dev/pillarbox/destination/http"
	"github.com/pillarbox-dev/pillarbox/destination/kafka"
	"github.com/pillarbox-dev/pillarbox/envelope"
	"github.com/pillarbox-dev/pillarbox/internal/config"
	"github.com/pillarbox-dev/pillarbox/internal/telemetry"
	"github.com/pillarbox-dev/pillarbox/outbox/schema"
	"github.com/pillarbox-dev/pillarbox/relay"
)

// target is a destination that was put together, with what has to run beside it.
type target struct {
	relay.Destination
	name  string
	codes []string // that its outcomes may have
	run   func(context.Context, *slog.Logger)
	close func()
}

// newTarget makes the destination of one name. The database is asked for endpoints when it has some; not before run or Check.
// metrics, unless nil, count what producers of Kafka do.
func newTarget(c *config.Config, name string, db *sql.DB, metrics *telemetry.KafkaMetrics) (*target, error) {
	switch d := c.Destinations[name]; {
	case d.HTTP != nil:
		return newHTTP(c.Database, name, d.HTTP, db)
	case d.Kafka != nil:
		return newKafka(name, d.Kafka, metrics)
	}
	return nil, fmt.Errorf("destination %s says nothing about where it goes: add http: {url: …} or kafka: {brokers: […]}", name)
}

func newKafka(name string, k *config.Kafka, metrics *telemetry.KafkaMetrics) (*target, error) {
	settings := k.Config()
	if metrics != nil {
		counts := metrics.For(name)
		settings.Observer, settings.Hooks = counts, []kgo.Hook{counts}
	}
	made, err := kafka.New(settings)
	if err != nil {
		return nil, fmt.Errorf("destination %s: %w", name, err)
	}
	return &target{
		Destination: made, name: name, close: made.Close, run: func(context.Context, *slog.Logger) {},
		codes: append(kafka.Codes(), envelope.CodeInvalid, envelope.CodeTimeout),
	}, nil
}

func newHTTP(d config.Database, name string, h *config.HTTP, db *sql.DB) (*target, error) {
	settings := h.Config()
	t := &target{name: name, run: func(context.Context, *slog.Logger) {}}
	if h.EndpointTable {
		query := http.SQLiteEndpoints()
		if d.Dialect() == schema.Postgres {
			query = http.PostgresEndpoints(d.SchemaName())
		}
		table := http.NewTable(http.TableConfig{
			Load: http.LoadTable(db.QueryContext, query, name), CredentialFolder: h.CredentialFolder,
		})
		settings.Endpoints = table
		t.run = func(ctx context.Context, log *slog.Logger) {
			table.Run(ctx, func(err error) { log.Warn("endpoints are not up to date", "destination", name, "error", err) })
		}
	}
	made, err := http.New(settings)
	if err != nil {
		return nil, fmt.Errorf("destination %s: %w", name, err)
	}
	t.Destination, t.close = made, made.Close
	t.codes = append(h.Codes(), httpCodes()...)
	return t, nil
}

// httpCodes are the codes of destination/http, besides HTTP_nnn.
func httpCodes() []string {
	return []string{
		http.CodeProtocol, http.CodeMoved, http.CodeRedirect, http.CodeUnauthorized, http.CodeForbidden, http.CodeEgress,
		http.CodeGone, http.CodeRateLimited, http.CodeOverloaded,
		http.CodeTimeout, http.CodeDial, http.CodeDNS, http.CodeTLS, http.CodeReset, http.CodeConfig, http.CodePolicy,
		http.CodeCancelled, http.CodeNoTarget, http.CodeHeaders,
		envelope.CodeInvalid, envelope.CodeTimeout,
	}
}
