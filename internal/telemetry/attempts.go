package telemetry

import (
	"context"
	"log/slog"

	"github.com/pillarbox-dev/pillarbox/relay"
)

// AttemptLog writes one line for each attempt: what was delivered, where, and what came of it. Payloads, headers and keys are
// not in it, nor what the receiver said.
type AttemptLog struct {
	relay.Unobserved
	Logger *slog.Logger
}

// Attempted implements relay.Observer. A success is written at level info, a quarantine at error, a delivery that a stop broke off
// at debug, and everything else at warn.
func (l AttemptLog) Attempted(destination string, attempts []relay.Attempt) {
	ctx := context.Background()
	for i := range attempts {
		a := &attempts[i]
		level := levelOf(a)
		if !l.Logger.Enabled(ctx, level) {
			continue
		}
		attrs := make([]slog.Attr, 0, 12)
		attrs = append(attrs,
			slog.String("destination", destination),
			slog.String("endpoint", a.Delivery.Endpoint),
			slog.Int64("seq", a.Delivery.Seq),
			slog.String("event_id", a.Delivery.ID),
			slog.String("type", a.Delivery.Type),
			slog.Int("attempt", a.Delivery.Attempt),
			slog.String("outcome", a.Outcome.Kind.String()),
			slog.String("status", string(a.Decision)),
			slog.String("code", a.Code),
			slog.Duration("took", a.Took))
		if a.Outcome.Receipt != "" {
			attrs = append(attrs, slog.String("receipt", a.Outcome.Receipt))
		}
		if a.NextIn > 0 {
			attrs = append(attrs, slog.Duration("next_in", a.NextIn))
		}
		l.Logger.LogAttrs(ctx, level, "attempt", attrs...)
	}
}

func levelOf(a *relay.Attempt) slog.Level {
	switch {
	case a.Outcome.Kind == relay.Published:
		return slog.LevelInfo
	case a.Outcome.Kind == relay.Released:
		return slog.LevelDebug
	case a.Decision == relay.StatusQuarantined:
		return slog.LevelError
	}
	return slog.LevelWarn
}
