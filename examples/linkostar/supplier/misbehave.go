package supplier

import (
	"errors"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/pillarbox-dev/pillarbox/outbox/webhook"
)

// counts are what the process has done.
type counts struct{ duplicates, answers atomic.Int64 }

func (c *counts) count(_ int, reason webhook.Reason) {
	if reason == webhook.Duplicate {
		c.duplicates.Add(1)
	}
}

// misbehave stands before a supplier's handler: it is down for a while, and loses answers when the work is done.
func (s Supplier) misbehave(next http.Handler, counts *counts, started time.Time) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if up := time.Since(started); up >= s.DownAfter && up < s.DownAfter+s.DownFor {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		a := &answer{header: http.Header{}}
		next.ServeHTTP(a, r)
		if s.LoseEvery > 0 && a.status == http.StatusOK && counts.answers.Add(1)%s.LoseEvery == 0 {
			panic(http.ErrAbortHandler) // the connection is cut
		}
		a.send(w)
	})
}

// answer holds an answer back until it is known whether it is sent.
type answer struct {
	header http.Header
	status int
	body   []byte
}

func (a *answer) Header() http.Header    { return a.header }
func (a *answer) WriteHeader(status int) { a.status = status }

func (a *answer) Write(b []byte) (int, error) {
	a.body = append(a.body, b...)
	return len(b), nil
}

func (a *answer) send(w http.ResponseWriter) {
	for name, values := range a.header {
		w.Header()[name] = values
	}
	w.WriteHeader(a.status)
	_, _ = w.Write(a.body) // a sender that has hung up will ask again
}

// errRefused is told to the sender. What was refused is not in the inbox, and may be sent again when the tenant has paid.
var errRefused = errors.New("refused")

// refuses returns the status with which a supplier refuses a body for good; 0: it takes it.
func (s Supplier) refuses(body []byte) int {
	if tenant, err := field(body, "tenant_uuid"); err == nil && tenant == s.NoBalance {
		if _, err := field(body, "activation_uuid"); err == nil {
			return http.StatusPaymentRequired
		}
	}
	if identifier, err := field(body, "hub_identifier"); s.NoLegacy && err == nil && strings.HasPrefix(identifier, "legacy-") {
		return http.StatusUnprocessableEntity
	}
	return 0
}
