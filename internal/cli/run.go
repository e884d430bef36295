package cli

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/pillarbox-dev/pillarbox/internal/config"
	"github.com/pillarbox-dev/pillarbox/internal/wire"
)

func newRun(a *app) *cobra.Command {
	var r run
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Deliver events until told to stop",
		Long: `run delivers events to every destination of the configuration. Several processes may run on one database: each
destination, or each shard of it, is worked on by one of them, and taken over when that one is gone.

SIGINT or SIGTERM stops it cleanly: what is under way is waited for, within relay.drain, and the leases are given back.
A second one ends it at once; what was under way then may be sent twice.

The log goes to standard error: a line for each attempt to deliver, and what an operator should know. With listen in the
configuration, /healthz, /readyz and /metrics are served, the dashboard at / and the API at /api/v1.

With OTEL_EXPORTER_OTLP_ENDPOINT or OTEL_TRACES_EXPORTER in the environment a span is sent of each call to a destination.`,
		Example: `  pillarbox run
  pillarbox run -c /etc/pillarbox/pillarbox.yaml --log-format json --log-attempts=false`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return r.run(cmd, a) },
	}
	cmd.Flags().StringVar(&r.format, "log-format", "", "text or json, instead of what the configuration says")
	cmd.Flags().StringVar(&r.level, "log-level", "", "debug, info, warn or error, instead of what the configuration says")
	cmd.Flags().BoolVar(&r.attempts, "log-attempts", true, "a line for each attempt, instead of what the configuration says")
	return cmd
}

type run struct {
	format, level string
	attempts      bool
}

func (r *run) run(cmd *cobra.Command, a *app) error {
	if err := r.check(); err != nil {
		return err
	}
	c, err := a.load()
	if err != nil {
		return err
	}
	r.override(cmd, &c.Log)
	log := newLogger(a, c.Log)
	p, err := wire.NewProcess(cmd.Context(), c, log)
	if err != nil {
		return err
	}
	defer p.Close()
	log.Info("the relay starts", "version", versionText(), "owner", p.Owner, "database", c.Database.URL.String(),
		"destinations", c.Names(), "listen", p.Addr)
	err = p.Run(cmd.Context())
	if cause := context.Cause(cmd.Context()); cause != nil {
		log.Info("the relay has stopped", "cause", cause)
	}
	return err
}

func (r *run) check() error {
	for _, flag := range []struct {
		name, value string
		words       []string
	}{
		{"--log-format", r.format, []string{"", "text", "json"}},
		{"--log-level", r.level, []string{"", "debug", "info", "warn", "error"}},
	} {
		if !slices.Contains(flag.words, flag.value) {
			return usageError{fmt.Errorf("%s is %q: it can be %s", flag.name, flag.value, strings.Join(flag.words[1:], " or "))}
		}
	}
	return nil
}

// override lets the flags that were given win.
func (r *run) override(cmd *cobra.Command, log *config.Log) {
	if r.format != "" {
		log.Format = r.format
	}
	if r.level != "" {
		log.Level = r.level
	}
	if cmd.Flags().Changed("log-attempts") {
		log.Attempts = &r.attempts
	}
}

func newLogger(a *app, c config.Log) *slog.Logger {
	var level slog.Level // info
	if c.Level != "" {
		_ = level.UnmarshalText([]byte(c.Level)) // one of four words
	}
	options := &slog.HandlerOptions{Level: level}
	if c.Format == "json" {
		return slog.New(slog.NewJSONHandler(a.errOut, options))
	}
	return slog.New(slog.NewTextHandler(a.errOut, options))
}
