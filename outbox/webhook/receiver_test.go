package webhook

import (
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pillarbox-dev/pillarbox/outbox"
	"github.com/pillarbox-dev/pillarbox/outbox/inbox"
)

const (
	receiverSecret = "the-secret-of-the-receiver"
	receiverToken  = "the-token-of-the-receiver"
)

var receiverNow = time.Unix(standardTime, 0)

// memory is an inbox and its transactions, in memory.
type memory struct {
	handled map[string]string
	inbox   error // what the inbox answers, if it is not nil
	begin   error
	commit  error
}

// memoryTx knows what it is to write at its commit.
type memoryTx struct {
	m        *memory
	id, body string
	end      string
}

func (m *memory) Begin(context.Context) (*memoryTx, outbox.Tx, error) {
	tx := &memoryTx{m: m}
	return tx, tx, m.begin
}

func (m *memory) First(_ context.Context, tx outbox.Tx, _, id string, body []byte) (bool, error) {
	if m.inbox != nil {
		return false, m.inbox
	}
	before, seen := m.handled[id]
	if seen && before != string(body) {
		return false, inbox.ErrDifferentBody
	}
	tx.(*memoryTx).id, tx.(*memoryTx).body = id, string(body)
	return !seen, nil
}

func (tx *memoryTx) Commit() error {
	if tx.m.commit != nil {
		return tx.m.commit
	}
	tx.m.handled[tx.id] = tx.body
	tx.end = "committed"
	return nil
}

func (tx *memoryTx) Rollback() error {
	tx.end = cmp.Or(tx.end, "rolled back")
	return nil
}

// receiving is a handler under test, and what it did.
type receiving struct {
	memory
	http.Handler
	log    bytes.Buffer
	counts []string
	last   *memoryTx
	given  Delivery
	fail   func() error
}

func newReceiving(t testing.TB, change func(*Config[*memoryTx])) *receiving {
	t.Helper()
	r := &receiving{memory: memory{handled: map[string]string{}}}
	c := Config[*memoryTx]{
		Consumer: "test",
		Inbox:    &r.memory,
		Begin: func(ctx context.Context) (*memoryTx, outbox.Tx, error) {
			own, tx, err := r.Begin(ctx)
			r.last = own
			return own, tx, err
		},
		Handle: func(_ context.Context, _ *memoryTx, d Delivery) error {
			r.given = d
			if r.fail != nil {
				return r.fail()
			}
			return nil
		},
		Secrets: func(context.Context) ([][]byte, error) { return [][]byte{[]byte("old"), []byte(receiverSecret)}, nil },
		Tokens:  func(context.Context) ([]string, error) { return []string{"old", receiverToken}, nil },
		Log:     slog.New(slog.NewTextHandler(&r.log, nil)),
		Count:   func(status int, reason Reason) { r.counts = append(r.counts, fmt.Sprint(status, " ", reason)) },
		Now:     func() time.Time { return receiverNow },
	}
	if change != nil {
		change(&c)
	}
	h, err := NewHandler(c)
	if err != nil {
		t.Fatal(err)
	}
	r.Handler = h
	return r
}

// draft is a delivery before it is signed.
type draft struct {
	method, contentType, token, id, secret string
	scheme                                 Scheme
	at                                     time.Time
	body                                   string
	chunked                                bool
	after                                  []func(*http.Request) // once it is signed
}

func newDraft(scheme Scheme) *draft {
	return &draft{method: "POST", contentType: "application/json", token: receiverToken, id: "id-1", secret: receiverSecret,
		scheme: scheme, at: receiverNow, body: `{"id":"id-1","n":1.0}`}
}

func (d *draft) request() *http.Request {
	var body io.Reader = strings.NewReader(d.body)
	if d.chunked {
		body = io.MultiReader(body) // of a type that does not tell its length
	}
	req := httptest.NewRequestWithContext(context.Background(), d.method, "/events", body)
	req.Header["Content-Type"] = []string{d.contentType}
	req.Header["Authorization"] = []string{"Bearer " + d.token}
	if d.scheme == SHA256Hex {
		req.Header["Idempotency-Key"] = []string{d.id}
		req.Header["Pillarbox-Signature"] = []string{SignHex([]byte(d.secret), []byte(d.body))}
	} else {
		req.Header[HeaderID] = []string{d.id}
		req.Header[HeaderTimestamp] = []string{fmt.Sprint(d.at.Unix())}
		req.Header[HeaderSignature] = []string{SignStandard([][]byte{[]byte(d.secret)}, d.id, d.at, []byte(d.body))}
	}
	for _, change := range d.after {
		change(req)
	}
	return req
}

func (d *draft) header(name string, values ...string) {
	d.after = append(d.after, func(r *http.Request) {
		delete(r.Header, name)
		if values != nil {
			r.Header[name] = values
		}
	})
}

func (r *receiving) send(d *draft) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	r.ServeHTTP(w, d.request())
	return w
}

// defects is what can be wrong with a request, in the order in which it is looked for.
var defects = []struct {
	name   string
	scheme []Scheme // none: both
	spoil  func(*draft)
	status int
	reason Reason
}{
	{"GET", nil, func(d *draft) { d.method = "GET" }, 405, BadMethod},
	{"content type", nil, func(d *draft) { d.contentType = "text/plain" }, 415, BadContentType},
	{"no content type", nil, func(d *draft) { d.header("Content-Type") }, 415, BadContentType},
	{"compressed", nil, func(d *draft) { d.header("Content-Encoding", "gzip") }, 415, BadEncoding},
	{"Content-Length", nil, func(d *draft) {
		if !d.chunked {
			d.body = strings.Repeat("1", 1<<20+1)
		}
	}, 413, TooLarge},
	{"no token", nil, func(d *draft) { d.header("Authorization") }, 401, NoToken},
	{"two tokens", nil, func(d *draft) { d.header("Authorization", "Bearer "+receiverToken, "Bearer "+receiverToken) }, 401, NoToken},
	{"basic", nil, func(d *draft) { d.header("Authorization", "Basic "+receiverToken) }, 401, NoToken},
	{"wrong token", nil, func(d *draft) { d.token = receiverToken[1:] }, 401, WrongToken},
	{"empty token", nil, func(d *draft) { d.token = "" }, 401, WrongToken},
	{"no signature", []Scheme{SHA256Hex}, func(d *draft) { d.header("Pillarbox-Signature") }, 401, NoSignature},
	{"two signatures", []Scheme{SHA256Hex}, func(d *draft) {
		d.after = append(d.after, func(r *http.Request) {
			r.Header["Pillarbox-Signature"] = append(r.Header["Pillarbox-Signature"], r.Header["Pillarbox-Signature"]...)
		})
	}, 401, NoSignature},
	{"short", []Scheme{SHA256Hex}, func(d *draft) { d.header("Pillarbox-Signature", "sha256=00") }, 401, BadSignature},
	{"not ASCII", []Scheme{SHA256Hex}, func(d *draft) {
		d.header("Pillarbox-Signature", "sha256="+strings.Repeat("é", 32))
	}, 401, BadSignature},
	{"no standard signature", []Scheme{StandardWebhooks}, func(d *draft) { d.header(HeaderSignature) }, 401, NoSignature},
	{"no time", []Scheme{StandardWebhooks}, func(d *draft) { d.header(HeaderTimestamp) }, 401, NoSignature},
	{"malformed time", []Scheme{StandardWebhooks}, func(d *draft) { d.header(HeaderTimestamp, "now") }, 401, BadSignature},
	{"other version", []Scheme{StandardWebhooks}, func(d *draft) { d.header(HeaderSignature, "v2,AAAA") }, 401, BadSignature},
	{"chunked, too large", nil, func(d *draft) { d.body, d.chunked = strings.Repeat("1", 1<<20+1), true }, 413, TooLarge},
	{"broken off", nil, func(d *draft) {
		d.after = append(d.after, func(r *http.Request) {
			r.Body = io.NopCloser(io.MultiReader(r.Body, errorReader{}))
		})
	}, 400, BrokenBody},
	{"other secret", nil, func(d *draft) { d.secret = "another" }, 401, WrongSignature},
	{"empty secret", nil, func(d *draft) { d.secret = "" }, 401, WrongSignature},
	{"too old", []Scheme{StandardWebhooks}, func(d *draft) { d.at = receiverNow.Add(-DefaultTolerance - time.Second) }, 401, NotInTime},
	{"too new", []Scheme{StandardWebhooks}, func(d *draft) { d.at = receiverNow.Add(DefaultTolerance + time.Second) }, 401, NotInTime},
	{"no id", []Scheme{SHA256Hex}, func(d *draft) { d.header("Idempotency-Key") }, 400, BadID},
	{"two ids", []Scheme{SHA256Hex}, func(d *draft) { d.header("Idempotency-Key", "id-1", "id-1") }, 400, BadID},
	{"long id", nil, func(d *draft) { d.id = strings.Repeat("x", 256) }, 400, BadID},
	{"id not ASCII", nil, func(d *draft) { d.id = "é" }, 400, BadID},
	{"id with a space", nil, func(d *draft) { d.id = "a b" }, 400, BadID},
	{"other id", nil, func(d *draft) { d.id = "id-2" }, 400, OtherID},
}

type errorReader struct{}

func (errorReader) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

// TestHandlerRefuses has every defect alone and with every other one: the answer is that of the first in the order, nothing was
// begun, and nothing secret was said.
func TestHandlerRefuses(t *testing.T) {
	bodyID := func(c *Config[*memoryTx]) {
		c.BodyID = func(body []byte) (string, error) {
			if bytes.Contains(body, []byte(`"id":"id-1"`)) {
				return "id-1", nil
			}
			return "", errors.New("no id")
		}
	}
	for _, scheme := range []Scheme{SHA256Hex, StandardWebhooks} {
		r := newReceiving(t, func(c *Config[*memoryTx]) { bodyID(c); c.Scheme = scheme })
		for i, first := range defects {
			for _, second := range defects[i:] {
				if first.scheme != nil && !slices.Contains(first.scheme, scheme) ||
					second.scheme != nil && !slices.Contains(second.scheme, scheme) {
					continue
				}
				d := newDraft(scheme)
				second.spoil(d)
				first.spoil(d)
				if d.chunked && first.name == "Content-Length" {
					continue // a body has a length or is chunked
				}
				r.counts, r.last = nil, nil
				r.log.Reset()
				w := r.send(d)
				what := fmt.Sprintf("scheme %d, %s and %s", scheme, first.name, second.name)
				if w.Code != first.status || !slices.Equal(r.counts, []string{fmt.Sprint(first.status, " ", first.reason)}) {
					t.Errorf("%s: got %d, counted %q; want %d %s", what, w.Code, r.counts, first.status, first.reason)
				}
				if w.Code == 401 && (w.Body.Len() != 0 || len(w.Header()) != 1 || w.Header().Get("Content-Length") != "0") {
					t.Errorf("%s: 401 with %q, %v; want the same empty answer for every cause", what, w.Body, w.Header())
				}
				if (w.Header().Get("Allow") == "POST") != (w.Code == 405) {
					t.Errorf("%s: Allow is %q", what, w.Header().Get("Allow"))
				}
				if r.last != nil {
					t.Errorf("%s: a transaction was begun", what)
				}
				checkSecrets(t, r, w, d.request())
				if !strings.Contains(r.log.String(), "reason="+string(first.reason)) {
					t.Errorf("%s: the log says %q", what, r.log.String())
				}
			}
		}
	}
}

// checkSecrets: neither the log nor the answer shows a secret, a token or a signature.
func checkSecrets(t *testing.T, r *receiving, w *httptest.ResponseRecorder, req *http.Request) {
	t.Helper()
	said := r.log.String() + w.Body.String() + fmt.Sprint(w.Header())
	shown := []string{receiverSecret, receiverToken}
	for _, name := range []string{"Pillarbox-Signature", HeaderSignature} {
		for _, value := range req.Header[name] {
			if len(value) > 8 {
				shown = append(shown, value)
			}
		}
	}
	for _, secret := range shown {
		if strings.Contains(said, secret) {
			t.Errorf("%q is shown: %s", secret, said)
		}
	}
}

func TestHandlerAccepts(t *testing.T) {
	for name, tt := range map[string]struct {
		scheme Scheme
		change func(*draft)
		config func(*Config[*memoryTx])
	}{
		"hex":            {SHA256Hex, func(*draft) {}, nil},
		"old secret":     {SHA256Hex, func(d *draft) { d.secret = "old" }, nil},
		"old token":      {SHA256Hex, func(d *draft) { d.token = "old" }, nil},
		"no token asked": {SHA256Hex, func(d *draft) { d.token = "" }, func(c *Config[*memoryTx]) { c.Tokens = nil }},
		"upper-case hex": {SHA256Hex, func(d *draft) {
			d.header("Pillarbox-Signature", "sha256="+strings.ToUpper(SignHex([]byte(receiverSecret), []byte(d.body))[7:]))
		}, nil},
		"bearer in small letters": {SHA256Hex, func(d *draft) { d.header("Authorization", "bearer "+receiverToken) }, nil},
		"parameters":              {SHA256Hex, func(d *draft) { d.contentType = "application/json; charset=utf-8" }, nil},
		"cloudevents":             {SHA256Hex, func(d *draft) { d.contentType = "application/cloudevents+json; charset=UTF-8" }, nil},
		"own content type": {SHA256Hex, func(d *draft) { d.contentType = "application/avro" },
			func(c *Config[*memoryTx]) { c.ContentTypes = []string{"Application/Avro"} }},
		"not UTF-8":        {SHA256Hex, func(d *draft) { d.body = "\xff\xfe\x00" }, nil},
		"tombstone":        {SHA256Hex, func(d *draft) { d.body = ""; d.header("Content-Type") }, nil},
		"chunked":          {SHA256Hex, func(d *draft) { d.chunked = true }, nil},
		"as large as may":  {SHA256Hex, func(d *draft) { d.body = strings.Repeat("1", 1<<20) }, nil},
		"identity":         {SHA256Hex, func(d *draft) { d.header("Content-Encoding", "identity") }, nil},
		"standard":         {StandardWebhooks, func(*draft) {}, nil},
		"standard, old":    {StandardWebhooks, func(d *draft) { d.secret, d.at = "old", d.at.Add(-DefaultTolerance) }, nil},
		"standard, new":    {StandardWebhooks, func(d *draft) { d.at = d.at.Add(DefaultTolerance) }, nil},
		"standard, of two": {StandardWebhooks, func(d *draft) { d.header(HeaderSignature, "v2,x "+standardOf(d)) }, nil},
		"own header names": {SHA256Hex, func(d *draft) {
			d.header("X-Signature", SignHex([]byte(receiverSecret), []byte(d.body)))
			d.header("X-Id", "id-1")
			d.header("Pillarbox-Signature")
			d.header("Idempotency-Key")
		}, func(c *Config[*memoryTx]) { c.SignatureHeader, c.IDHeader = "x-signature", "x-id" }},
		"prefix of another sender": {StandardWebhooks, func(d *draft) {
			d.header("Svix-Id", "id-1")
			d.header("Svix-Timestamp", fmt.Sprint(d.at.Unix()))
			d.header("Svix-Signature", standardOf(d))
			d.header(HeaderID)
		}, func(c *Config[*memoryTx]) {
			c.SignatureHeader, c.IDHeader, c.TimestampHeader = "svix-signature", "svix-id", "svix-timestamp"
		}},
	} {
		t.Run(name, func(t *testing.T) {
			r := newReceiving(t, func(c *Config[*memoryTx]) {
				c.Scheme = tt.scheme
				if tt.config != nil {
					tt.config(c)
				}
			})
			d := newDraft(tt.scheme)
			tt.change(d)
			for _, want := range []string{`{"duplicate":false}`, `{"duplicate":true}`} {
				if w := r.send(d); w.Code != 200 || w.Body.String() != want || w.Header().Get("Content-Type") != "application/json" {
					t.Fatalf("got %d %q, want 200 %s\n%s", w.Code, w.Body, want, &r.log)
				}
			}
			if want := []string{"200 handled", "200 duplicate"}; !slices.Equal(r.counts, want) {
				t.Errorf("counted %q, want %q", r.counts, want)
			}
			if r.given.ID != "id-1" || string(r.given.Body) != d.body || r.given.Header.Get("Authorization") == "" && name != "no token asked" {
				t.Errorf("the handler got %q, %q, %v", r.given.ID, r.given.Body, r.given.Header)
			}
			if r.log.Len() != 0 {
				t.Errorf("the log says %s", &r.log)
			}
		})
	}
}

func standardOf(d *draft) string {
	return SignStandard([][]byte{[]byte(d.secret)}, d.id, d.at, []byte(d.body))
}

// TestHandlerAnswers is what comes after the checks.
func TestHandlerAnswers(t *testing.T) {
	secrets := func(secrets [][]byte, err error) func(*Config[*memoryTx]) {
		return func(c *Config[*memoryTx]) {
			c.Secrets = func(context.Context) ([][]byte, error) { return secrets, err }
		}
	}
	broken := errors.New("broken")
	for name, tt := range map[string]struct {
		config     func(*Config[*memoryTx])
		prepare    func(*receiving)
		secret     string
		status     int
		reason     Reason
		retryAfter string
		body       string
		end        string
	}{
		"twin in flight": {nil, func(r *receiving) { r.inbox = fmt.Errorf("x: %w", inbox.ErrInFlight) }, receiverSecret,
			409, InFlight, "1", `{"error":"it is being handled: try again"}`, "rolled back"},
		"other body": {nil, func(r *receiving) { r.handled["id-1"] = "x" }, receiverSecret,
			422, DifferentBody, "", `{"error":"this Idempotency-Key was seen with another body"}`, "rolled back"},
		"only the id counts": {func(c *Config[*memoryTx]) { c.SameBody = func(Delivery) []byte { return nil } },
			func(r *receiving) { r.handled["id-1"] = "" }, receiverSecret, 200, Duplicate, "", `{"duplicate":true}`, "committed"},
		"inbox broken": {nil, func(r *receiving) { r.inbox = broken }, receiverSecret, 503, DatabaseFailed, "1", "", "rolled back"},
		"begin broken": {nil, func(r *receiving) { r.begin = broken }, receiverSecret, 503, DatabaseFailed, "1", "", ""},
		"commit broken": {nil, func(r *receiving) { r.commit = broken }, receiverSecret, 503, DatabaseFailed, "1", "",
			"rolled back"},
		"try again": {nil, func(r *receiving) {
			r.fail = func() error { return fmt.Errorf("x: %w", TryAgain(1500*time.Millisecond, broken)) }
		},
			receiverSecret, 503, AskedToRetry, "2", "", "rolled back"},
		"try again, default": {func(c *Config[*memoryTx]) { c.RetryAfter = time.Minute },
			func(r *receiving) { r.fail = func() error { return TryAgain(0, nil) } }, receiverSecret, 503, AskedToRetry, "60", "", "rolled back"},
		"malformed": {nil, func(r *receiving) { r.fail = func() error { return Malformed(errors.New("caseId is missing")) } }, receiverSecret,
			400, MalformedBody, "", `{"error":"caseId is missing"}`, "rolled back"},
		"refused": {nil, func(r *receiving) {
			r.fail = func() error { return fmt.Errorf("x: %w", Refuse(402, errors.New("no balance"))) }
		},
			receiverSecret, 402, Refused, "", `{"error":"no balance"}`, "rolled back"},
		"refused with what is no refusal": {nil, func(r *receiving) { r.fail = func() error { return Refuse(429, broken) } }, receiverSecret,
			500, HandlerFailed, "", "", "rolled back"},
		"any error": {nil, func(r *receiving) { r.fail = func() error { return broken } }, receiverSecret, 500, HandlerFailed, "", "",
			"rolled back"},
		"guard in flight": {nil, func(r *receiving) { r.fail = func() error { return fmt.Errorf("x: %w", inbox.ErrInFlight) } }, receiverSecret,
			409, InFlight, "1", `{"error":"it is being handled: try again"}`, "rolled back"},
		"no secrets":         {secrets(nil, nil), nil, receiverSecret, 503, NoSecrets, "1", "", ""},
		"secrets broken":     {secrets([][]byte{[]byte(receiverSecret)}, broken), nil, receiverSecret, 503, NoSecrets, "1", "", ""},
		"only empty secrets": {secrets([][]byte{{}, nil}, nil), nil, "", 503, NoSecrets, "1", "", ""},
		"an empty secret":    {secrets([][]byte{{}, []byte(receiverSecret)}, nil), nil, "", 401, WrongSignature, "", "", ""},
		"only empty tokens": {func(c *Config[*memoryTx]) {
			c.Tokens = func(context.Context) ([]string, error) { return []string{""}, nil }
		}, nil, receiverSecret, 503, NoSecrets, "1", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			r := newReceiving(t, tt.config)
			if tt.prepare != nil {
				tt.prepare(r)
			}
			d := newDraft(SHA256Hex)
			d.secret = tt.secret
			w := r.send(d)
			if w.Code != tt.status || w.Body.String() != tt.body || w.Header().Get("Retry-After") != tt.retryAfter {
				t.Errorf("got %d %q, Retry-After %q; want %d %q, %q", w.Code, w.Body, w.Header().Get("Retry-After"), tt.status, tt.body,
					tt.retryAfter)
			}
			if want := []string{fmt.Sprint(tt.status, " ", tt.reason)}; !slices.Equal(r.counts, want) {
				t.Errorf("counted %q, want %q", r.counts, want)
			}
			if end := endOf(r.last); end != tt.end && r.begin == nil {
				t.Errorf("the transaction is %q, want %q", end, tt.end)
			}
			checkSecrets(t, r, w, d.request())
		})
	}
}

func endOf(tx *memoryTx) string {
	if tx == nil {
		return ""
	}
	return tx.end
}

// TestHandlerPanics: the panic goes on to the server, and the transaction is rolled back before.
func TestHandlerPanics(t *testing.T) {
	r := newReceiving(t, nil)
	r.fail = func() error { panic(http.ErrAbortHandler) }
	func() {
		defer func() {
			if err, _ := recover().(error); !errors.Is(err, http.ErrAbortHandler) {
				t.Errorf("recovered %v, want the handler's own panic", err)
			}
		}()
		r.send(newDraft(SHA256Hex))
	}()
	if r.last.end != "rolled back" || len(r.handled) != 0 || !slices.Equal(r.counts, []string{"500 handler_panicked"}) {
		t.Errorf("the transaction is %q, the inbox holds %v, counted %q", r.last.end, r.handled, r.counts)
	}
}

func TestNewHandlerTellsAllProblems(t *testing.T) {
	_, err := NewHandler(Config[*memoryTx]{Scheme: 7, SignatureHeader: "a b", ContentTypes: []string{"json"}, MaxBodyBytes: -1,
		Tolerance: -1, RetryAfter: time.Millisecond})
	for _, want := range []string{"Consumer", "Inbox", "Begin", "Handle", "Secrets", "Scheme", `"a b"`, `"json"`, "MaxBodyBytes", "Tolerance",
		"RetryAfter"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want all problems, %s among them", err, want)
		}
	}
}

// FuzzHandler: whatever comes, nothing panics, nothing is handled that was not signed and named with the token, and no secret is shown.
func FuzzHandler(f *testing.F) {
	for _, scheme := range []Scheme{SHA256Hex, StandardWebhooks} {
		req := newDraft(scheme).request()
		f.Add(scheme == StandardWebhooks, "POST", "application/json", "", "Bearer "+receiverToken, "id-1", fmt.Sprint(standardTime),
			req.Header.Get("Pillarbox-Signature")+req.Header.Get(HeaderSignature), []byte(newDraft(scheme).body))
	}
	f.Add(false, "PUT", "text/x", "gzip", "Basic x", "é", "-1", "sha256=", []byte{0xff})
	f.Add(true, "POST", "application/json", "", "Bearer "+receiverToken, "a", "1", "v1, v1,"+strings.Repeat("A", 43)+"=", []byte{})
	f.Fuzz(func(t *testing.T, standard bool, method, contentType, encoding, authorization, id, timestamp, signature string, body []byte) {
		scheme := SHA256Hex
		if standard {
			scheme = StandardWebhooks
		}
		r := newReceiving(t, func(c *Config[*memoryTx]) { c.Scheme, c.MaxBodyBytes = scheme, 1000 })
		req := httptest.NewRequestWithContext(t.Context(), "POST", "/", bytes.NewReader(body))
		req.Method = method
		for name, value := range map[string]string{"Content-Type": contentType, "Content-Encoding": encoding, "Authorization": authorization,
			"Idempotency-Key": id, HeaderID: id, HeaderTimestamp: timestamp, "Pillarbox-Signature": signature, HeaderSignature: signature} {
			if value != "" {
				req.Header[name] = []string{value}
			}
		}
		w := httptest.NewRecorder()
		r.ServeHTTP(w, req)
		if !slices.Contains([]int{200, 400, 401, 405, 413, 415}, w.Code) || len(r.counts) != 1 {
			t.Fatalf("got %d, counted %q", w.Code, r.counts)
		}
		if w.Code == 401 && w.Body.Len() != 0 {
			t.Fatalf("401 with %q", w.Body)
		}
		if w.Code != 200 && (r.last != nil || len(r.handled) != 0) {
			t.Fatalf("%d, and a transaction was begun", w.Code)
		}
		checkSecrets(t, r, w, httptest.NewRequestWithContext(t.Context(), "GET", "/", nil))
		if w.Code != 200 {
			return
		}
		if _, token, _ := strings.Cut(authorization, " "); token != receiverToken && token != "old" {
			t.Fatalf("accepted with %q", authorization)
		}
		if !signedRight(standard, id, timestamp, signature, body) {
			t.Fatalf("accepted a forgery: %q %q %q %q", id, timestamp, signature, body)
		}
	})
}

// signedRight verifies by other means than the code under test.
func signedRight(standard bool, id, timestamp, signature string, body []byte) bool {
	for _, secret := range []string{"old", receiverSecret} {
		if !standard && strings.EqualFold(signature[7:], hex.EncodeToString(sum([]byte(secret), body))) {
			return true
		}
		mac := base64.StdEncoding.EncodeToString(sum([]byte(secret), []byte(id+"."+timestamp+"."+string(body))))
		if standard && slices.Contains(strings.Split(signature, " "), "v1,"+mac) {
			return true
		}
	}
	return false
}
