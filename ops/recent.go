package ops

import (
	"context"
	"database/sql"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/pillarbox-dev/pillarbox/relay"
)

// RecentRows is how many of the newest rows of a ledger Recent looks at.
const RecentRows = 1000

// Recent is how deliveries to one destination went lately, out of the newest rows of its ledger. A destination that keeps no
// ledger has none of it.
type Recent struct {
	// Deliveries is how many rows there were, at most RecentRows; Published of them were.
	Deliveries int `json:"deliveries"`
	Published  int `json:"published"`
	// Attempts are all attempts for them, Failures those that did not publish. What an outage did not charge is in neither.
	Attempts int64 `json:"attempts"`
	Failures int64 `json:"failures"`
	// P50, P95 and P99 are of the published: from when the event could have been delivered (it was created, or became
	// available) until it was published, by the database's clock. 0: none was published.
	P50 Seconds `json:"p50_seconds"`
	P95 Seconds `json:"p95_seconds"`
	P99 Seconds `json:"p99_seconds"`
	// Since and Until are when the first and the last of them were published.
	Since *time.Time `json:"since,omitempty"`
	Until *time.Time `json:"until,omitempty"`
}

// FailureRate is the part of the attempts that failed, 0 to 1.
func (r Recent) FailureRate() float64 {
	if r.Attempts == 0 {
		return 0
	}
	return float64(r.Failures) / float64(r.Attempts)
}

// Recent looks at the newest rows of a destination's ledger, by the number of the event, whichever relay wrote them. It costs the
// same however long the ledger is. A destination that is not known has an empty one.
func (o *Ops) Recent(ctx context.Context, destination string) (Recent, error) {
	var query string
	if err := fill(o.dialect, o.schemaName, map[string]*string{"recent": &query}); err != nil {
		return Recent{}, err
	}
	rows, err := o.db.QueryContext(ctx, query, destination, RecentRows)
	if err != nil {
		return Recent{}, fmt.Errorf("read the newest deliveries of %s: %w", destination, err)
	}
	defer rows.Close()
	var r Recent
	var took []time.Duration
	for rows.Next() {
		var status relay.Status
		var attempts int64
		var published, micros sql.NullInt64
		if err := rows.Scan(&status, &attempts, &published, &micros); err != nil {
			return Recent{}, fmt.Errorf("read the newest deliveries of %s: %w", destination, err)
		}
		r.add(status, attempts, moment(published))
		if status == relay.StatusPublished && micros.Valid {
			took = append(took, max(0, time.Duration(micros.Int64)*time.Microsecond))
		}
	}
	if err := rows.Err(); err != nil {
		return Recent{}, fmt.Errorf("read the newest deliveries of %s: %w", destination, err)
	}
	slices.Sort(took)
	r.P50, r.P95, r.P99 = percentile(took, 0.5), percentile(took, 0.95), percentile(took, 0.99)
	return r, nil
}

func (r *Recent) add(status relay.Status, attempts int64, published *time.Time) {
	r.Deliveries++
	r.Attempts += attempts
	if status != relay.StatusPublished {
		r.Failures += attempts
		return
	}
	r.Published++
	r.Failures += max(0, attempts-1) // the last one published
	if published == nil {
		return
	}
	if r.Since == nil || published.Before(*r.Since) {
		r.Since = published
	}
	if r.Until == nil || published.After(*r.Until) {
		r.Until = published
	}
}

// percentile returns the smallest of the sorted values that so many are not above.
func percentile(sorted []time.Duration, part float64) Seconds {
	if len(sorted) == 0 {
		return 0
	}
	at := int(math.Ceil(part*float64(len(sorted)))) - 1
	return Seconds(sorted[min(max(at, 0), len(sorted)-1)])
}
