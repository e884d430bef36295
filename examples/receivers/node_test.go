// Package receivers holds receivers of signed deliveries in other languages, and the tests that hold them to the same answers as
// the middleware in outbox/webhook.
package receivers

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/pillarbox-dev/pillarbox/internal/pgtest"
	"github.com/pillarbox-dev/pillarbox/outbox/schema"
	"github.com/pillarbox-dev/pillarbox/outbox/webhook"
)

const (
	secret       = "s3cret"
	standardText = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	token        = "t0ken"
	schemaName   = `the "inbox"`
)

// node returns the command that runs a script of the Node example, with its packages installed.
func node(t *testing.T, script string) *exec.Cmd {
	t.Helper()
	path, err := exec.LookPath("node")
	if err != nil {
		t.Fatalf("%v: install Node.js 18.3 or later; receivers in other languages are part of what is promised", err)
	}
	if _, err := os.Stat(filepath.Join("node", "node_modules", "standardwebhooks")); err != nil {
		install := exec.CommandContext(t.Context(), "npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund")
		install.Dir = "node"
		if out, err := install.CombinedOutput(); err != nil {
			t.Fatalf("npm ci in examples/receivers/node: %v\n%s", err, out)
		}
	}
	cmd := exec.CommandContext(t.Context(), path, script)
	cmd.Dir = "node"
	return cmd
}

// startNode runs a server with the given environment and returns the URL of its events.
func startNode(t *testing.T, script string, env ...string) string {
	t.Helper()
	cmd := node(t, script)
	cmd.Env = append(os.Environ(), env...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	stdout, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		for _, shown := range []string{secret, standardText, token} {
			if strings.Contains(stderr.String(), shown) {
				t.Errorf("the receiver's log shows %s", shown)
			}
		}
		if t.Failed() {
			t.Logf("what the receiver wrote: %s", &stderr)
		}
	})
	started := time.AfterFunc(60*time.Second, func() { _ = cmd.Process.Kill() })
	line, _ := bufio.NewReader(stdout).ReadString('\n')
	started.Stop()
	port, ok := strings.CutPrefix(strings.TrimSpace(line), "listening on ")
	if !ok {
		t.Fatalf("the receiver does not start: %q", line)
	}
	return "http://127.0.0.1:" + port + "/events"
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// newDatabase has the tables, and those of the test server.
func newDatabase(t *testing.T) (string, *pgxpool.Pool) {
	t.Helper()
	url := pgtest.Database(t)
	pool, err := pgxpool.New(t.Context(), url)
	must(t, err)
	t.Cleanup(pool.Close)
	db := stdlib.OpenDBFromPool(pool)
	t.Cleanup(func() { db.Close() })
	_, err = schema.Migrate(t.Context(), db, schema.Postgres, schemaName)
	must(t, err)
	_, err = pool.Exec(t.Context(), "create table handled (id text, body text); create table hold (x integer)")
	must(t, err)
	return url, pool
}

// draft is a delivery before it is signed.
type draft struct {
	standard                       bool
	method, contentType, token, id string
	secret                         []byte
	at                             time.Time
	body                           string
	chunked                        bool
	header                         http.Header // set once it is signed; no values: taken away
}

func newDraft(standard bool, id, body string) *draft {
	d := &draft{standard: standard, method: "POST", contentType: "application/json", token: token, id: id, secret: []byte(secret),
		at: time.Now(), body: body, header: http.Header{}}
	if standard {
		d.secret, _ = webhook.ParseSecret(standardText)
	}
	return d
}

func (d *draft) send(t testing.TB, url string) (status int, answer string, header http.Header) {
	t.Helper()
	var body io.Reader = strings.NewReader(d.body)
	if d.chunked {
		body = io.MultiReader(body)
	}
	req, err := http.NewRequestWithContext(t.Context(), d.method, url, body)
	must(t, err)
	req.Header = http.Header{"Content-Type": {d.contentType}, "Authorization": {"Bearer " + d.token}}
	if d.standard {
		req.Header[webhook.HeaderID] = []string{d.id}
		req.Header[webhook.HeaderTimestamp] = []string{fmt.Sprint(d.at.Unix())}
		req.Header[webhook.HeaderSignature] = []string{webhook.SignStandard([][]byte{d.secret}, d.id, d.at, []byte(d.body))}
	} else {
		// Written so, Go's transport does not send the request again by itself.
		req.Header["idempotency-key"] = []string{d.id}
		req.Header["Pillarbox-Signature"] = []string{webhook.SignHex(d.secret, []byte(d.body))}
	}
	for name, values := range d.header {
		if req.Header[name] = values; values == nil {
			delete(req.Header, name)
		}
	}
	got, err := http.DefaultClient.Do(req)
	must(t, err)
	defer got.Body.Close()
	text, err := io.ReadAll(got.Body)
	must(t, err)
	return got.StatusCode, string(text), got.Header
}

// defects is what can be wrong with a request, in the order in which it is looked for.
var defects = []struct {
	name   string
	scheme string // "": both
	spoil  func(*draft)
	want   int
}{
	{"method", "", func(d *draft) { d.method = "PUT" }, 405},
	{"content type", "", func(d *draft) { d.contentType = "text/plain" }, 415},
	{"no content type", "", func(d *draft) { d.header["Content-Type"] = nil }, 415},
	{"compressed", "", func(d *draft) { d.header["Content-Encoding"] = []string{"gzip"} }, 415},
	{"Content-Length", "", func(d *draft) { d.body = strings.Repeat(" ", 1000) + d.body }, 413},
	{"no token", "", func(d *draft) { d.header["Authorization"] = nil }, 401},
	{"two tokens", "", func(d *draft) { d.header["Authorization"] = []string{"Bearer " + token, "Bearer " + token} }, 401},
	{"basic", "", func(d *draft) { d.header["Authorization"] = []string{"Basic " + token} }, 401},
	{"wrong token", "", func(d *draft) { d.token = "t0keN" }, 401},
	{"empty token", "", func(d *draft) { d.token = "" }, 401},
	{"no signature", "hex", func(d *draft) { d.header["Pillarbox-Signature"] = nil }, 401},
	{"empty signature", "hex", func(d *draft) { d.header["Pillarbox-Signature"] = []string{""} }, 401},
	{"short", "hex", func(d *draft) { d.header["Pillarbox-Signature"] = []string{"sha256=00"} }, 401},
	{"not ASCII", "hex", func(d *draft) { d.header["Pillarbox-Signature"] = []string{"sha256=" + strings.Repeat("é", 32)} }, 401},
	{"twice", "hex", func(d *draft) {
		d.header["Pillarbox-Signature"] = slices.Repeat([]string{webhook.SignHex(d.secret, []byte(d.body))}, 2)
	}, 401},
	{"no standard signature", "standard", func(d *draft) { d.header[webhook.HeaderSignature] = nil }, 401},
	{"no time", "standard", func(d *draft) { d.header[webhook.HeaderTimestamp] = nil }, 401},
	{"malformed time", "standard", func(d *draft) { d.header[webhook.HeaderTimestamp] = []string{"-1"} }, 401},
	{"other version", "standard", func(d *draft) { d.header[webhook.HeaderSignature] = []string{"v2,AAAA"} }, 401},
	{"chunked, too large", "", func(d *draft) { d.body, d.chunked = strings.Repeat(" ", 1000)+d.body, true }, 413},
	{"other secret", "", func(d *draft) { d.secret = []byte("another") }, 401},
	{"empty secret", "", func(d *draft) { d.secret = nil }, 401},
	{"too old", "standard", func(d *draft) { d.at = d.at.Add(-6 * time.Minute) }, 401},
	{"too new", "standard", func(d *draft) { d.at = d.at.Add(6 * time.Minute) }, 401},
	{"no id", "hex", func(d *draft) { d.header["idempotency-key"] = nil }, 400},
	{"two ids", "hex", func(d *draft) { d.header["idempotency-key"] = []string{"e", "e"} }, 400},
	{"long id", "", func(d *draft) { d.id = strings.Repeat("x", 256) }, 400},
	{"id not ASCII", "", func(d *draft) { d.id = "é" }, 400},
	{"other id", "", func(d *draft) { d.id = "other" }, 400},
}

// TestNodeReceiver holds the example in Node to every row of the receiver's answers.
func TestNodeReceiver(t *testing.T) {
	for _, scheme := range []string{"hex", "standard"} {
		t.Run(scheme, func(t *testing.T) {
			database, pool := newDatabase(t)
			standard, secrets := scheme == "standard", "old,"+secret
			if standard {
				secrets = "b2xk," + standardText
			}
			url := startNode(t, "testdata/server.js", "DATABASE_URL="+database, "SCHEMA="+schemaName, "SCHEME="+scheme,
				"SECRETS="+secrets, "TOKENS=old,"+token)
			t.Run("refuses", func(t *testing.T) { testRefuses(t, url, scheme) })
			t.Run("answers", func(t *testing.T) { testAnswers(t, url, standard, pool) })
			t.Run("once", func(t *testing.T) { testOnce(t, url, standard, pool) })
		})
	}
}

// testRefuses has every defect alone, and with the next one that is answered in another way.
func testRefuses(t *testing.T, url, scheme string) {
	fits := func(s string) bool { return s == "" || s == scheme }
	for i, first := range defects {
		for k, second := range defects[i:] {
			if !fits(first.scheme) || !fits(second.scheme) || k > 0 && second.want == first.want {
				continue
			}
			d := newDraft(scheme == "standard", "e", `{"id":"e"}`)
			second.spoil(d)
			first.spoil(d)
			if d.chunked && first.name == "Content-Length" {
				continue // a body has a length or is chunked
			}
			status, answer, header := d.send(t, url)
			if status != first.want || status == 401 && answer != "" || (header.Get("Allow") == "POST") != (status == 405) {
				t.Errorf("%s and %s: got %d %q, want %d", first.name, second.name, status, answer, first.want)
			}
		}
	}
}

func testAnswers(t *testing.T, url string, standard bool, pool *pgxpool.Pool) {
	want := func(d *draft, status int, answer string) {
		t.Helper()
		got, text, header := d.send(t, url)
		if got != status || text != answer || (header.Get("Retry-After") == "1") != (status == 409 || status == 503) {
			t.Errorf("%s: got %d %q, Retry-After %q; want %d %q", d.body, got, text, header.Get("Retry-After"), status, answer)
		}
	}
	const isNew, isOld = `{"duplicate":false}`, `{"duplicate":true}`
	raw := "{ \"id\" : \"raw\", \"n\":1.0, \"n\":12345678901234567890.10, \"t\":\"\\u00e9é\" }\n"
	want(newDraft(standard, "raw", raw), 200, isNew)
	want(newDraft(standard, "raw", raw), 200, isOld)
	rotated := newDraft(standard, "raw", raw)
	rotated.secret, rotated.token = []byte("old"), "old"
	want(rotated, 200, isOld)
	name := "idempotency-key"
	if standard {
		name = "webhook-id"
	}
	want(newDraft(standard, "raw", `{"id":"raw"}`), 422, `{"error":"this `+name+` was seen with another body"}`)
	want(newDraft(standard, "e", `{"id":"e","then":"malformed"}`), 400, `{"error":"no case"}`)
	want(newDraft(standard, "e", `{"id":"e","then":"retry"}`), 503, "")
	want(newDraft(standard, "e", `{"id":"e","then":"fail"}`), 500, "")

	var times int
	must(t, pool.QueryRow(t.Context(), `select times from "the ""inbox""".outbox_inbox_duplicate where event_id = 'raw'`).Scan(&times))
	if times != 2 {
		t.Errorf("%d duplicates are counted, want 2", times)
	}

	// A twin in flight.
	exec := func(query string) {
		t.Helper()
		_, err := pool.Exec(t.Context(), query)
		must(t, err)
	}
	exec("insert into hold values (1)")
	slow := newDraft(standard, "slow", `{"id":"slow","then":"wait"}`)
	var twin sync.WaitGroup
	twin.Go(func() { want(slow, 200, isNew) })
	for held := 0; held == 0; time.Sleep(10 * time.Millisecond) {
		must(t, pool.QueryRow(t.Context(), "select count(*) from pg_stat_activity where datname = current_database() and "+
			"state = 'idle in transaction' and query like 'insert into handled%'").Scan(&held))
	}
	want(newDraft(standard, "slow", slow.body), 409, `{"error":"it is being handled: try again"}`)
	exec("delete from hold")
	twin.Wait()
	want(newDraft(standard, "slow", slow.body), 200, isOld)

	// What failed has left nothing; what was handled, came as it was sent.
	var got string
	must(t, pool.QueryRow(t.Context(), "select string_agg(id || ' ' || body, ',' order by id) from handled").Scan(&got))
	encode := base64.StdEncoding.EncodeToString
	if want := "raw " + encode([]byte(raw)) + ",slow " + encode([]byte(slow.body)); got != want {
		t.Errorf("handled %s, want %s", got, want)
	}
	want(newDraft(standard, "e", `{"id":"e"}`), 200, isNew)
}

// testOnce sends each event several times at once.
func testOnce(t *testing.T, url string, standard bool, pool *pgxpool.Pool) {
	const events, senders = 30, 4
	var wg sync.WaitGroup
	for range senders {
		wg.Go(func() {
			for n := range events {
				id := fmt.Sprintf("once-%d", n)
				for tries := 0; tries < 1000; tries++ {
					if status, answer, _ := newDraft(standard, id, `{"id":"`+id+`"}`).send(t, url); status == 200 {
						break
					} else if status != 409 {
						t.Errorf("%s: got %d %q", id, status, answer)
						return
					}
				}
			}
		})
	}
	wg.Wait()
	var rows, different int
	must(t, pool.QueryRow(t.Context(), "select count(*), count(distinct id) from handled where id like 'once-%'").Scan(&rows, &different))
	if rows != events || different != events {
		t.Errorf("%d rows of %d events, want %d of each", rows, different, events)
	}
}

// TestNodeExample runs the server that a reader copies.
func TestNodeExample(t *testing.T) {
	database, pool := newDatabase(t)
	file := func(text string) string {
		name := filepath.Join(t.TempDir(), "secret")
		must(t, os.WriteFile(name, []byte(text+"\n"), 0o600))
		return name
	}
	url := startNode(t, "server.js", "PORT=0", "DATABASE_URL="+database, "SCHEMA="+schemaName,
		"SECRET_FILES="+file("old")+","+file(secret), "TOKEN_FILES="+file(token))
	for _, want := range []string{`{"duplicate":false}`, `{"duplicate":true}`} {
		if status, answer, _ := newDraft(false, "e", `{"a":1}`).send(t, url); status != 200 || answer != want {
			t.Errorf("got %d %q, want 200 %s", status, answer, want)
		}
	}
	if status, _, _ := newDraft(false, "f", `{`).send(t, url); status != 400 {
		t.Errorf("not JSON: got %d, want 400", status)
	}
	var got string
	must(t, pool.QueryRow(t.Context(), "select string_agg(event_id || ' ' || body::text, ',') from case_event").Scan(&got))
	if got != `e {"a": 1}` {
		t.Errorf("the service holds %q", got)
	}
	cmd := node(t, "server.js")
	cmd.Env = []string{"PATH=" + os.Getenv("PATH")}
	out, err := cmd.CombinedOutput()
	if failed := (*exec.ExitError)(nil); !errors.As(err, &failed) || failed.ExitCode() != 2 || !strings.Contains(string(out), "SECRET_FILES") {
		t.Errorf("without settings: got %v, %s", err, out)
	}
}

// TestStandardWebhooksPackage: the reference implementation in JavaScript takes our signatures, and refuses what was changed.
func TestStandardWebhooksPackage(t *testing.T) {
	key, err := webhook.ParseSecret(standardText)
	must(t, err)
	type headers map[string]string
	type line struct {
		Secret  string  `json:"secret"`
		Headers headers `json:"headers"`
		Body    []byte  `json:"body"`
	}
	sign := func(secrets [][]byte, id string, at time.Time, body string) line {
		return line{standardText, headers{"webhook-id": id, "webhook-timestamp": fmt.Sprint(at.Unix()),
			"webhook-signature": webhook.SignStandard(secrets, id, at, []byte(body))}, []byte(body)}
	}
	now := time.Now()
	mine := [][]byte{key}
	changed := sign(mine, "e", now, `{"n":1.0}`)
	changed.Body = []byte(`{"n":1}`)
	otherID := sign(mine, "e", now, `{}`)
	otherID.Headers["webhook-id"] = "f"
	cases := []struct {
		line line
		want string
	}{
		{sign(mine, "e", now, `{}`), "ok"},
		{sign(mine, "msg_p5jXN8AQM9LWM0D4loKWxJek", now, "{ \"n\":1.0, \"t\":\"é\" }\n"), "ok"},
		{sign([][]byte{[]byte("new"), key}, "e", now, `{}`), "ok"},
		{sign([][]byte{key, []byte("new")}, "e", now, `{}`), "ok"},
		{sign(mine, "e", now.Add(-4*time.Minute), `{}`), "ok"},
		{sign(mine, "e", now.Add(-6*time.Minute), `{}`), "WebhookVerificationError"},
		{sign(mine, "e", now.Add(6*time.Minute), `{}`), "WebhookVerificationError"},
		{sign([][]byte{[]byte("another")}, "e", now, `{}`), "WebhookVerificationError"},
		{changed, "WebhookVerificationError"},
		{otherID, "WebhookVerificationError"},
	}
	var input bytes.Buffer
	for _, c := range cases {
		must(t, json.NewEncoder(&input).Encode(c.line))
	}
	cmd := node(t, "testdata/verify.js")
	cmd.Stdin = &input
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	got := strings.Split(strings.TrimSpace(string(out)), "\n")
	if len(got) != len(cases) {
		t.Fatalf("got %d lines, want %d:\n%s", len(got), len(cases), out)
	}
	for i, c := range cases {
		if !strings.HasPrefix(got[i], c.want) {
			t.Errorf("case %d, %v: got %q, want %s", i, c.line.Headers, got[i], c.want)
		}
	}
}
