package platform

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/pillarbox-dev/pillarbox/outbox"
	"github.com/pillarbox-dev/pillarbox/relay"
)

// CodeBalance is what the relay calls a 402: the supplier refuses an activation for lack of balance.
const CodeBalance = "REJECTED_BALANCE"

// Exec runs a statement in the transaction of a settle, of whichever driver.
type Exec func(ctx context.Context, query string, args ...any) error

// OnSettle writes what became of deliveries into the rows that they are about. It is called by the store, in the transaction that
// settles them: both commit, or neither.
type OnSettle func(ctx context.Context, exec Exec, destination string, s relay.Settlement) error

// Settled returns the OnSettle for a dialect.
func Settled(d outbox.Dialect) OnSettle {
	q := statementsOf(d)
	statements := map[string][]string{Registration: {q.settleHub, q.settleDevice}, Activations: {q.settleActivation}}
	return func(ctx context.Context, exec Exec, destination string, s relay.Settlement) error {
		outcomes := outcomesOf(destination, s)
		if len(outcomes) == 0 {
			return nil
		}
		text, err := json.Marshal(outcomes)
		if err != nil {
			return err
		}
		for _, statement := range statements[destination] {
			if err := exec(ctx, statement, string(text)); err != nil {
				return fmt.Errorf("set the status of %d rows: %w", len(outcomes), err)
			}
		}
		return nil
	}
}

// outcome is what became of a delivery, in the platform's words.
type outcome struct {
	Seq    int64   `json:"seq"`
	Status string  `json:"status"`
	Code   *string `json:"code"`
}

func outcomesOf(destination string, s relay.Settlement) (all []outcome) {
	for _, p := range s.Published {
		all = append(all, outcome{Seq: p.Seq, Status: syncStatus(destination, relay.StatusPublished, "")})
	}
	for _, r := range s.Rows {
		status := syncStatus(destination, r.Status, r.ErrorCode)
		if status == "" {
			continue
		}
		o := outcome{Seq: r.Seq, Status: status}
		if r.ErrorCode != "" {
			o.Code = &r.ErrorCode
		}
		all = append(all, o)
	}
	return all
}

// syncStatus is a delivery's status in the platform's words; "": nothing has been decided, the row stays as it is.
func syncStatus(destination string, s relay.Status, code string) string {
	switch s {
	case relay.StatusPublished:
		if destination == Activations {
			return "SENT"
		}
		return "SYNCED"
	case relay.StatusFailed:
		return "FAILED"
	case relay.StatusQuarantined:
		if destination == Activations && code == CodeBalance {
			return CodeBalance
		}
		return "DEAD"
	}
	return ""
}
