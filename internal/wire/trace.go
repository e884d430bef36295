package wire

import (
	"context"
	"os"

	"github.com/pillarbox-dev/pillarbox/internal/config"
	"github.com/pillarbox-dev/pillarbox/internal/telemetry"
)

// trace returns the observer that makes spans, when the environment asks for them, and none otherwise.
func (p *Process) trace(ctx context.Context, c *config.Config) (telemetry.Observers, error) {
	systems := map[string]string{}
	for name, d := range c.Destinations {
		switch {
		case d.HTTP != nil:
			systems[name] = "http"
		case d.Kafka != nil:
			systems[name] = "kafka"
		}
	}
	made, err := telemetry.NewTracing(ctx, telemetry.TracingConfig{
		Getenv: os.Getenv, Owner: p.Owner, Systems: systems, Logger: p.log,
	})
	if made == nil || err != nil {
		return nil, err
	}
	p.closers = append(p.closers, made.Close)
	return telemetry.Observers{made}, nil
}
