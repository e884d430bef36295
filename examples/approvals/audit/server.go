package audit

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"database/sql"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/pillarbox-dev/pillarbox/outbox/webhook"
	"github.com/pillarbox-dev/pillarbox/store/sqlite"
)

// SignatureHeader carries the signature of the body: sha256= and hex.
const SignatureHeader = "X-Audit-Signature"

const maxBody = 64 << 10

// Server takes events. It is an http.Handler.
type Server struct {
	db     *sql.DB
	secret []byte
	mux    *http.ServeMux

	mu      sync.Mutex
	control Control
	taken   int // events that were stored, for LoseEvery
}

// Control says how the server behaves. Its fields go to PUT /control as JSON; what is left out stays as it was.
type Control struct {
	// Down: everything is answered with 503.
	Down *bool `json:"down,omitempty"`
	// SlowMS is how many milliseconds each request waits. What its sender does not wait for is not stored.
	SlowMS *int `json:"slow_ms,omitempty"`
	// LoseEvery nth event is stored, and its answer lost: the connection ends. 0: none.
	LoseEvery *int `json:"lose_every,omitempty"`
	// Token is the one that is accepted from now on.
	Token *string `json:"token,omitempty"`
}

// New opens the store, a SQLite file that is made when it is not there.
func New(ctx context.Context, path, token string, secret []byte) (*Server, error) {
	db, err := sqlite.OpenDB(ctx, sqlite.Config{Path: path, Synchronous: sqlite.Normal})
	if err != nil {
		return nil, err
	}
	if _, err := db.ExecContext(ctx, tables); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	s := &Server{db: db, secret: secret, mux: http.NewServeMux(), control: Control{new(false), new(0), new(0), &token}}
	s.mux.HandleFunc("POST /events", s.take)
	s.mux.HandleFunc("PUT /control", s.tell)
	return s, nil
}

// Close closes the store. Requests have ended by then.
func (s *Server) Close() error { return s.db.Close() }

// Chain verifies the chain and returns it.
func (s *Server) Chain(ctx context.Context) ([]Entry, error) { return Verify(ctx, s.db) }

func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.mux.ServeHTTP(w, r) }

// Tell changes how the server behaves.
func (s *Server) Tell(c Control) {
	s.mu.Lock()
	defer s.mu.Unlock()
	set(&s.control.Down, c.Down)
	set(&s.control.SlowMS, c.SlowMS)
	set(&s.control.LoseEvery, c.LoseEvery)
	set(&s.control.Token, c.Token)
}

func set[T any](field **T, value *T) {
	if value != nil {
		*field = value
	}
}

func (s *Server) tell(w http.ResponseWriter, r *http.Request) {
	var c Control
	decoder := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxBody))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&c); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	s.Tell(c)
	w.WriteHeader(http.StatusNoContent)
}

// take takes one event: misbehave as told, authenticate, verify, chain, answer.
func (s *Server) take(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	now := s.control
	s.mu.Unlock()
	select {
	case <-time.After(time.Duration(*now.SlowMS) * time.Millisecond):
	case <-r.Context().Done():
		return
	}
	if *now.Down {
		w.Header().Set("Retry-After", "1")
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	if !bearer(r.Header.Get("Authorization"), *now.Token) {
		w.WriteHeader(http.StatusUnauthorized) // and no word why
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		w.WriteHeader(http.StatusRequestEntityTooLarge)
		return
	}
	if webhook.VerifyHex([][]byte{s.secret}, body, r.Header.Get(SignatureHeader)) != nil {
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	var event struct {
		ID string `json:"id"`
	}
	if json.Unmarshal(body, &event) != nil || event.ID == "" || event.ID != r.Header.Get("Idempotency-Key") {
		w.WriteHeader(http.StatusBadRequest) // the signature covers the body alone, so the id must be in it
		return
	}
	s.keep(r.Context(), w, event.ID, body)
}

// keep chains an event. It does not stop when the sender gives up.
func (s *Server) keep(ctx context.Context, w http.ResponseWriter, id string, body []byte) {
	duplicate, err := add(context.WithoutCancel(ctx), s.db, id, body)
	switch {
	case errors.Is(err, errOtherBody):
		w.WriteHeader(http.StatusUnprocessableEntity)
	case err != nil:
		w.WriteHeader(http.StatusServiceUnavailable)
	case s.losesAnswer():
		panic(http.ErrAbortHandler)
	case duplicate:
		w.WriteHeader(http.StatusOK)
		_, _ = io.WriteString(w, `{"duplicate":true}`)
	default:
		w.WriteHeader(http.StatusAccepted)
	}
}

func (s *Server) losesAnswer() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.taken++
	every := *s.control.LoseEvery
	return every > 0 && s.taken%every == 0
}

// bearer compares hashes, so that the time does not tell how much of a token fits.
func bearer(header, token string) bool {
	scheme, given, _ := strings.Cut(header, " ")
	got, want := sha256.Sum256([]byte(given)), sha256.Sum256([]byte(token))
	return strings.EqualFold(scheme, "Bearer") && hmac.Equal(got[:], want[:]) && token != ""
}
