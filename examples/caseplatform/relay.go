package main

import (
	"context"
	"embed"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"time"

	"github.com/pillarbox-dev/pillarbox/contract"
	"github.com/pillarbox-dev/pillarbox/destination/kafka"
	"github.com/pillarbox-dev/pillarbox/envelope"
	"github.com/pillarbox-dev/pillarbox/relay"
	"github.com/pillarbox-dev/pillarbox/store/postgres"
)

// outboxSchema holds the outbox, apart from the service's own tables.
const outboxSchema = "integration"

// destinationName is the same here and in pillarbox.yaml: a relay inside the service and one beside it share the cursor, and take
// over from each other.
const destinationName = "lifecycle"

//go:embed contracts
var contractFiles embed.FS

func loadContracts() (*contract.Contracts, error) {
	folder, err := fs.Sub(contractFiles, "contracts")
	if err != nil {
		return nil, err
	}
	return contract.Load(contract.Config{FS: folder})
}

// openRelay puts the relay together that runs inside the service. The settings are those of pillarbox.yaml.
func openRelay(
	ctx context.Context, s settings, contracts *contract.Contracts, log *slog.Logger,
) (c relay.Config, done func(), err error) {
	wrap, err := envelope.New(envelope.Config{Name: envelope.NameEnvelope, Target: envelope.Kafka, Producer: producer})
	if err != nil {
		return c, nil, err
	}
	destination, err := kafka.New(kafka.Config{Brokers: s.brokers, Envelope: wrap})
	if err != nil {
		return c, nil, err
	}
	store, err := postgres.Open(ctx, postgres.Config{URL: s.database, Schema: outboxSchema})
	if err != nil {
		destination.Close()
		return c, nil, err
	}
	return relay.Config{
		Store: store, Owner: fmt.Sprintf("case-platform-%d", os.Getpid()), Logger: log,
		Lease: 3 * time.Second,
		Destinations: []relay.DestinationConfig{{
			Name: destinationName, Destination: destination, Topics: relay.Topics{"reg.case.*"}, Contract: contracts.Judge,
			Timeout: 2 * time.Second,
			Breaker: relay.BreakerConfig{Probe: time.Second, MaxProbe: 15 * time.Second},
			// The next event of a case waits until somebody has dealt with the one before.
			OnQuarantine: relay.Hold,
		}},
	}, func() { store.Close(); destination.Close() }, nil
}
