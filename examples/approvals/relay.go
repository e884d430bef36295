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
	"github.com/pillarbox-dev/pillarbox/destination/http"
	"github.com/pillarbox-dev/pillarbox/envelope"
	"github.com/pillarbox-dev/pillarbox/examples/approvals/approval"
	"github.com/pillarbox-dev/pillarbox/examples/approvals/audit"
	"github.com/pillarbox-dev/pillarbox/relay"
)

// destinationName is also in the view approval_outbox.
const destinationName = "audit-core"

// adapter is the jq expression that makes what the audit store takes. The payload goes along as it is, byte for byte.
const adapter = `{
  id: .eventId,
  type: .eventType,
  source: .payload.source,
  subject: .payload.resource,
  tenant: .payload.tenant,
  correlation_id: (.headers.correlationId // .eventId),
  occurred_at: .payload.observed_at,
  data: .payload
}`

//go:embed contracts
var contractFiles embed.FS

func loadContracts() (*contract.Contracts, error) {
	folder, err := fs.Sub(contractFiles, "contracts")
	if err != nil {
		return nil, err
	}
	return contract.Load(contract.Config{FS: folder, Missing: contract.Quarantine})
}

// destination is the way to the audit store.
//
// All events have one key, so they are one lane: oldest first, one at a time. The token and the secret are files, read again for
// every attempt; while the store refuses a token that it has just rotated, the lane waits, and is tried again each second:
// nothing is charged to the events. error_text is off: of what went wrong, a code of a bounded set is kept, and no text of the
// other side.
func destination(s settings, contracts *contract.Contracts) (d relay.DestinationConfig, err error) {
	adapted, err := envelope.New(envelope.Config{Name: "jq", Target: envelope.HTTP, JQ: &envelope.JQ{Expression: adapter}})
	if err != nil {
		return d, err
	}
	made, err := http.New(http.Config{
		Endpoint:       http.Endpoint{URL: s.AuditURL, TokenFile: s.TokenFile, SecretFiles: []string{s.SecretFile}},
		Signing:        http.Signing{Hex: true, HexHeader: audit.SignatureHeader},
		Envelope:       adapted,
		Headers:        http.HeaderNames{ID: "-", Type: "-", Topic: "-"}, // the Idempotency-Key is the event's id
		EventHeaders:   http.EventHeaders{Omit: true},
		UserAgent:      "approvals",
		AllowAddresses: []string{"127.0.0.1"}, // the audit store of the demo
	})
	if err != nil {
		return d, fmt.Errorf("destination %s: %w", destinationName, err)
	}
	return relay.DestinationConfig{
		Name: destinationName, Destination: made, Topics: relay.Topics{approval.Topic}, Contract: contracts.Judge,
		Concurrency: 1, CodeOnly: true, Timeout: min(time.Second, s.Lease/2),
		Retry:   relay.RetryPolicy{Base: 100 * time.Millisecond, Max: 5 * time.Second, MaxAttempts: 20},
		Breaker: relay.BreakerConfig{Probe: time.Second, MaxProbe: time.Second, PauseProbe: time.Second},
	}, nil
}

// carrier is the relay: inside the service's process, or beside it.
type carrier struct {
	*relay.Relay
	settings relay.Config
	close    func()
}

func newCarrier(ctx context.Context, d database, s settings, seams seams, log *slog.Logger) (*carrier, error) {
	contracts, err := loadContracts()
	if err != nil {
		return nil, err
	}
	to, err := destination(s, contracts)
	if err != nil {
		return nil, err
	}
	store, closeStore, err := d.openStore(ctx)
	if err != nil {
		return nil, err
	}
	c := &carrier{close: closeStore, settings: relay.Config{
		Store: store, Owner: owner(), Lease: s.Lease, Destinations: []relay.DestinationConfig{to}, Logger: log,
	}}
	if seams.relay != nil {
		seams.relay(&c.settings)
	}
	if c.Relay, err = relay.New(c.settings); err != nil {
		closeStore()
		return nil, err
	}
	return c, nil
}

// owner tells the processes of a database apart.
func owner() string {
	host, err := os.Hostname()
	if err != nil || host == "" {
		host = "host"
	}
	return fmt.Sprintf("%s-%d", host, os.Getpid())
}
