package demo

import (
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	random "math/rand/v2"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pillarbox-dev/pillarbox/internal/reckon"
	"github.com/pillarbox-dev/pillarbox/outbox/webhook"
	"github.com/pillarbox-dev/pillarbox/store/sqlite"
)

// receiver is the suppliers' side: it verifies signatures, handles each event once, and misbehaves. One of its endpoints takes
// everything and answers nothing until it is mended.
type receiver struct {
	db     *sql.DB
	server *http.Server
	addr   string
	secret []byte
	lie    Lie

	mended  chan struct{}
	mending sync.Once
	counts  counts
	liar    liar
}

// counts are what the receiver did, for the view.
type counts struct {
	handled, duplicates, unavailable, failed, rejected, tooLate, cut, unsigned atomic.Int64
}

// How a receiver misbehaves: the part of a thousand requests that …
const (
	unavailableRate = 50 // … are answered 503,
	failedRate      = 30 // … 500,
	tooLateRate     = 15 // … later than the relay waits, and half of them are handled all the same,
	cutRate         = 40 // … are handled, and then the connection is cut instead of an answer
	lateness        = deliveryTimeout + deliveryTimeout/2
)

const inboxTables = `
create table inbox (
  number   integer primary key autoincrement, -- in the order of handling
  event_id text    not null unique,
  supplier text    not null,
  order_id text    not null,
  times    integer not null default 1         -- that it arrived
) strict;
create table shipments (order_id text not null, version integer not null) strict;`

const (
	firstTime = `insert into inbox (event_id, supplier, order_id) values (?1, ?2, ?3)
	               on conflict (event_id) do update set times = times + 1 returning times`
	ship      = `insert into shipments values (?1, ?2)`
	readInbox = `select event_id, order_id, times from inbox order by number`
)

func newReceiver(ctx context.Context, path string, secret []byte, lie Lie) (*receiver, error) {
	// A lost inbox would not matter to a demo that ends with the machine; without waiting for the disk it is quicker.
	db, err := sqlite.OpenDB(ctx, sqlite.Config{Path: path, Synchronous: sqlite.Normal})
	if err != nil {
		return nil, err
	}
	if _, err := db.ExecContext(ctx, inboxTables); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	var listen net.ListenConfig
	listener, err := listen.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	r := &receiver{db: db, addr: listener.Addr().String(), secret: secret, lie: lie, mended: make(chan struct{})}
	r.server = &http.Server{Handler: r, ReadHeaderTimeout: 5 * time.Second, MaxHeaderBytes: 64 << 10}
	go func() { _ = r.server.Serve(listener) }() // until stop
	return r, nil
}

// newSecret makes the secret that both sides know.
func newSecret(path string) ([]byte, error) {
	secret := make([]byte, 32)
	_, _ = rand.Read(secret) // it never fails
	text := "whsec_" + base64.StdEncoding.EncodeToString(secret)
	if err := os.WriteFile(path, []byte(text+"\n"), 0o600); err != nil {
		return nil, fmt.Errorf("write the secret: %w", err)
	}
	return secret, nil
}

// mend lets the black hole answer.
func (r *receiver) mend() { r.mending.Do(func() { close(r.mended) }) }

// stop waits for what is being handled, also for those whose sender has given up.
func (r *receiver) stop() error {
	r.mend()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	return r.server.Shutdown(ctx)
}

func (r *receiver) close() error { return errors.Join(r.stop(), r.db.Close()) }

// delivery is a request as the receiver understands it.
type delivery struct {
	id, supplier string
	Order        string `json:"order"`
	Version      int64  `json:"version"`
	Amount       int64  `json:"amount"`
}

const maxBody = 64 << 10

func (r *receiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	d, status := r.read(w, req)
	if status != http.StatusOK {
		w.WriteHeader(status)
		return
	}
	if d.supplier == blackHoleName {
		select {
		case <-r.mended:
		case <-req.Context().Done():
			return
		}
	}
	if d.Amount < 0 {
		r.counts.rejected.Add(1)
		w.WriteHeader(http.StatusUnprocessableEntity)
		return
	}
	r.misbehave(w, req, d)
}

// read verifies the signature over the raw body, and then parses it.
func (r *receiver) read(w http.ResponseWriter, req *http.Request) (d delivery, status int) {
	if req.Method != http.MethodPost {
		return d, http.StatusMethodNotAllowed
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, req.Body, maxBody))
	if err != nil {
		return d, http.StatusRequestEntityTooLarge
	}
	signed := webhook.Standard{
		ID: req.Header.Get(webhook.HeaderID), Timestamp: req.Header.Get(webhook.HeaderTimestamp),
		Signature: req.Header.Get(webhook.HeaderSignature),
	}
	if err := webhook.VerifyStandard([][]byte{r.secret}, signed, body, time.Now(), 0); err != nil {
		r.counts.unsigned.Add(1)
		return d, http.StatusUnauthorized
	}
	if err := json.Unmarshal(body, &d); err != nil {
		return d, http.StatusBadRequest
	}
	d.id, d.supplier = signed.ID, strings.TrimPrefix(req.URL.Path, "/")
	return d, http.StatusOK
}

// misbehave handles an event, or does one of the things that real receivers do.
func (r *receiver) misbehave(w http.ResponseWriter, req *http.Request, d delivery) {
	dice := random.N(1000)
	under := func(part int) bool { dice -= part; return dice < 0 }
	switch {
	case under(unavailableRate):
		r.counts.unavailable.Add(1)
		w.WriteHeader(http.StatusServiceUnavailable)
	case under(failedRate):
		r.counts.failed.Add(1)
		w.WriteHeader(http.StatusInternalServerError)
	case under(tooLateRate):
		r.counts.tooLate.Add(1)
		time.Sleep(lateness)
		if dice%2 == 0 {
			r.answer(w, req, d)
		}
	case under(cutRate):
		if err := r.handle(req.Context(), d); err == nil {
			r.counts.cut.Add(1)
		}
		panic(http.ErrAbortHandler)
	default:
		r.answer(w, req, d)
	}
}

func (r *receiver) answer(w http.ResponseWriter, req *http.Request, d delivery) {
	if err := r.handle(req.Context(), d); err != nil {
		w.WriteHeader(http.StatusServiceUnavailable) // its transaction was rolled back: once more, please
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

// handle is the handler's transaction: have I seen it? if not, do it. It does not stop when the sender gives up.
func (r *receiver) handle(ctx context.Context, d delivery) error {
	ctx = context.WithoutCancel(ctx)
	if r.lie != Honest {
		return r.liar.handle(ctx, r, d)
	}
	return r.record(ctx, d)
}

func (r *receiver) record(ctx context.Context, d delivery) error {
	tx, err := r.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback() // after a commit it does nothing
	var times int
	if err := tx.QueryRowContext(ctx, firstTime, d.id, d.supplier, d.Order).Scan(&times); err != nil {
		return err
	}
	if times == 1 {
		if _, err := tx.ExecContext(ctx, ship, d.Order, d.Version); err != nil {
			return err
		}
	}
	if err := tx.Commit(); err != nil {
		return err
	}
	if times == 1 {
		r.counts.handled.Add(1)
	} else {
		r.counts.duplicates.Add(1)
	}
	return nil
}

// inbox returns what was handled, in order.
func (r *receiver) inbox(ctx context.Context) (all []reckon.Handled, err error) {
	rows, err := r.db.QueryContext(ctx, readInbox)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var h reckon.Handled
		if err := rows.Scan(&h.ID, &h.Key, &h.Times); err != nil {
			return nil, err
		}
		all = append(all, h)
	}
	return all, rows.Err()
}
