package consumertest

import (
	"context"
	"database/sql"
	"encoding/base64"
	"log/slog"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"github.com/pillarbox-dev/pillarbox/outbox"
	"github.com/pillarbox-dev/pillarbox/outbox/webhook"
)

func TestHTTP(t *testing.T) {
	w := newWorld(t)
	secret := []byte("the receiver and the relay know it")
	var duplicates atomic.Int64
	var refused atomic.Value
	handler, err := webhook.NewHandler(webhook.Config[*sql.Tx]{
		Consumer: "consumer", Inbox: w.box, Begin: outbox.BeginSQL(w.db, nil), Scheme: webhook.StandardWebhooks,
		Secrets: func(context.Context) ([][]byte, error) { return [][]byte{secret}, nil },
		Handle:  func(ctx context.Context, tx *sql.Tx, d webhook.Delivery) error { return w.apply(ctx, tx, d.ID, d.Body) },
		Log:     slog.New(slog.DiscardHandler),
		Count: func(_ int, reason webhook.Reason) {
			switch reason {
			case webhook.Duplicate:
				duplicates.Add(1)
			case webhook.Handled, webhook.InFlight, webhook.HandlerFailed:
			case webhook.BrokenBody, webhook.DatabaseFailed: // a relay was killed in between
			default:
				refused.Store(string(reason))
			}
		},
	})
	must(t, err)
	server := httptest.NewServer(handler)
	defer server.Close()
	w.carry(relayArgs{URL: server.URL, Secret: "whsec_" + base64.StdEncoding.EncodeToString(secret)})
	w.judge(int(duplicates.Load()))
	if reason := refused.Load(); reason != nil {
		t.Errorf("a delivery was answered for the reason %v", reason)
	}
}
