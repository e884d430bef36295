// Package supplier is the other side: a company that takes hubs, devices and activations over signed HTTP and handles each once.
//
//	request → signature, token → BEGIN: inbox → received → COMMIT → answer (each tenth is lost)
//
// It is what a supplier would write, with the middleware of outbox/webhook; and it misbehaves on purpose, as suppliers do.
package supplier

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/pillarbox-dev/pillarbox/outbox"
	"github.com/pillarbox-dev/pillarbox/outbox/inbox"
	"github.com/pillarbox-dev/pillarbox/outbox/schema"
	"github.com/pillarbox-dev/pillarbox/outbox/webhook"
	"github.com/pillarbox-dev/pillarbox/store/sqlite"
)

// Config is what a process of suppliers is made of.
type Config struct {
	// Database is a SQLite file that holds the inbox and what was received.
	Database  string
	Suppliers []Supplier
}

// Supplier is one company, and how it misbehaves. It takes POST /{Name}/hub, /{Name}/device and /{Name}/activation.
type Supplier struct {
	Name       string
	SecretFile string
	TokenFile  string // "": no token is asked for

	// LoseEvery cuts the connection instead of each such answer, with the work done; 0: never.
	LoseEvery int64
	// NoBalance is a tenant whose activations are refused with 402.
	NoBalance string
	// NoLegacy refuses hubs whose identifier begins with legacy- with 422.
	NoLegacy bool
	// DownAfter and DownFor are when everything is answered 503, counted from the start of the process.
	DownAfter, DownFor time.Duration
}

// Received is what a supplier holds. Key is what orders it.
type Received struct {
	Supplier string `json:"supplier"`
	Kind     string `json:"kind"`
	ID       string `json:"id"`
	Key      string `json:"key"`
	Body     string `json:"body"`
}

// Inbox is what GET /inbox answers, for the reckoning: all that was handled, in that order, and how often something came again.
type Inbox struct {
	Received   []Received `json:"received"`
	Duplicates int        `json:"duplicates"`
}

const (
	receivedTable = `create table if not exists received (
  number   integer primary key autoincrement, -- in the order of handling
  supplier text    not null,
  kind     text    not null,
  id       text    not null,
  key      text    not null,
  body     text    not null
) strict`
	insertReceived = `insert into received (supplier, kind, id, key, body) values (?1, ?2, ?3, ?4, ?5)`
	selectReceived = `select supplier, kind, id, key, body from received order by number`
)

// Serve takes deliveries until the context ends.
func Serve(ctx context.Context, listener net.Listener, c Config, log *slog.Logger) error {
	db, err := sqlite.OpenDB(ctx, sqlite.Config{Path: c.Database})
	if err != nil {
		return err
	}
	defer db.Close()
	handler, err := newHandler(ctx, db, c, log)
	if err != nil {
		return err
	}
	server := &http.Server{Handler: handler, ReadHeaderTimeout: 5 * time.Second}
	context.AfterFunc(ctx, func() {
		patience, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		_ = server.Shutdown(patience)
	})
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

func newHandler(ctx context.Context, db *sql.DB, c Config, log *slog.Logger) (http.Handler, error) {
	if _, err := schema.Migrate(ctx, db, schema.SQLite, ""); err != nil {
		return nil, err
	}
	if _, err := db.ExecContext(ctx, receivedTable); err != nil {
		return nil, fmt.Errorf("create the table of what was received: %w", err)
	}
	box, err := inbox.New(outbox.SQLite, inbox.Options{})
	if err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	counts := &counts{}
	for _, s := range c.Suppliers {
		for _, k := range kinds {
			webhook, err := webhook.NewHandler(s.webhook(k, db, box, counts, log))
			if err != nil {
				return nil, fmt.Errorf("supplier %s: %w", s.Name, err)
			}
			mux.Handle("/"+s.Name+"/"+k.name, s.misbehave(webhook, counts, time.Now()))
		}
	}
	mux.HandleFunc("GET /inbox", func(w http.ResponseWriter, r *http.Request) { counts.serveInbox(w, r, db) })
	return mux, nil
}

// kind is one sort of message: which fields of its body are its id and what orders it.
type kind struct{ name, id, key string }

var kinds = [...]kind{
	{"hub", "hub_uuid", "hub_uuid"},
	{"device", "device_uuid", "device_uuid"},
	{"activation", "activation_uuid", "device_uuid"},
}

// webhook is how a supplier receives one kind. The id must be in the body: the signature covers nothing else.
func (s Supplier) webhook(k kind, db *sql.DB, box *inbox.Inbox, counts *counts, log *slog.Logger) webhook.Config[*sql.Tx] {
	c := webhook.Config[*sql.Tx]{
		Consumer: s.Name, Inbox: box, Begin: outbox.BeginSQL(db, nil),
		SignatureHeader: "X-LinkOStar-Signature", IDHeader: "X-LinkOStar-Idempotency-Key",
		Secrets: func(context.Context) ([][]byte, error) {
			secret, err := readCredential(s.SecretFile)
			return [][]byte{[]byte(secret)}, err
		},
		BodyID: func(body []byte) (string, error) { return field(body, k.id) },
		Handle: func(ctx context.Context, tx *sql.Tx, d webhook.Delivery) error {
			if status := s.refuses(d.Body); status != 0 {
				return webhook.Refuse(status, errRefused)
			}
			key, err := field(d.Body, k.key)
			if err != nil {
				return webhook.Malformed(err)
			}
			_, err = tx.ExecContext(ctx, insertReceived, s.Name, k.name, d.ID, key, string(d.Body))
			return err
		},
		Count: counts.count, Log: log,
	}
	if s.TokenFile != "" {
		c.Tokens = func(context.Context) ([]string, error) {
			token, err := readCredential(s.TokenFile)
			return []string{token}, err
		}
	}
	return c
}

// readCredential is called for each request, so that a file can be rotated.
func readCredential(name string) (string, error) {
	text, err := os.ReadFile(name)
	return strings.TrimSpace(string(text)), err
}

// field returns a text field of a body.
func field(body []byte, name string) (string, error) {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(body, &fields); err != nil {
		return "", fmt.Errorf("the body is no JSON object: %w", err)
	}
	var text string
	if err := json.Unmarshal(fields[name], &text); err != nil || text == "" {
		return "", fmt.Errorf("the body has no text %s", name)
	}
	return text, nil
}

// serveInbox answers what was handled.
func (c *counts) serveInbox(w http.ResponseWriter, r *http.Request, db *sql.DB) {
	all, err := readReceived(r.Context(), db)
	if err != nil {
		http.Error(w, "the inbox cannot be read", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(Inbox{Received: all, Duplicates: int(c.duplicates.Load())}) // who hung up asks again
}

func readReceived(ctx context.Context, db *sql.DB) (all []Received, err error) {
	rows, err := db.QueryContext(ctx, selectReceived)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var r Received
		if err := rows.Scan(&r.Supplier, &r.Kind, &r.ID, &r.Key, &r.Body); err != nil {
			return nil, err
		}
		all = append(all, r)
	}
	return all, rows.Err()
}
