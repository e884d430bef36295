package http

import (
	"bufio"
	"fmt"
	"html"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pillarbox-dev/pillarbox/relay"
)

// Every row of the table of answers, each against a real server.
func TestAnswers(t *testing.T) {
	published := func(status int) relay.Outcome {
		return relay.Outcome{Kind: relay.Published, Receipt: fmt.Sprint(status)}
	}
	outcome := func(kind relay.Kind, code string, status int) relay.Outcome {
		return relay.Outcome{Kind: kind, Code: code, Receipt: fmt.Sprint(status)}
	}
	with := func(o relay.Outcome, change func(*relay.Outcome)) relay.Outcome { change(&o); return o }
	trouble := func(o *relay.Outcome) { o.Trouble = true }
	pause := func(o *relay.Outcome) { o.Pause = true }
	after := func(d time.Duration) func(*relay.Outcome) { return func(o *relay.Outcome) { o.After = d } }
	says := func(text string) func(*relay.Outcome) { return func(o *relay.Outcome) { o.Message = text } }

	type row struct {
		name   string
		answer http.HandlerFunc
		want   relay.Outcome
	}
	var rows []row
	add := func(name string, answer http.HandlerFunc, want relay.Outcome) {
		rows = append(rows, row{name, answer, want})
	}
	plain := func(kind relay.Kind, statuses ...int) {
		for _, s := range statuses {
			want := outcome(kind, fmt.Sprintf("HTTP_%d", s), s)
			want.Message = fmt.Sprintf("%d", s)
			add(fmt.Sprint(s), status(s), want)
		}
	}
	for _, s := range []int{200, 201, 202, 203, 204, 205, 206, 207, 226, 250, 299} {
		add(fmt.Sprint(s), status(s), published(s))
	}
	add("200 duplicate", func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, `{"duplicate":true}`)
	}, published(200))
	for _, s := range []int{300, 304, 305, 306, 350, 399} {
		add(fmt.Sprint(s), status(s, "Location", "https://elsewhere.example/"), outcome(relay.Retry, CodeProtocol, s))
	}
	for _, s := range []int{301, 302, 303, 307, 308} {
		add(fmt.Sprintf("%d without Location", s), status(s), outcome(relay.Retry, CodeProtocol, s))
	}
	for _, s := range []int{301, 308} {
		want := with(outcome(relay.Unavailable, CodeMoved, s), pause)
		add(fmt.Sprint(s), status(s, "Location", "https://user:pw@elsewhere.example/new?key=secret"),
			with(want, says("to https://elsewhere.example/new?…")))
		add(fmt.Sprintf("%d relative", s), status(s, "Location", "/v2"),
			with(want, says(fmt.Sprintf("/v2: said %d (no redirect is followed", s))))
		add(fmt.Sprintf("%d garbage", s), status(s, "Location", "http://[::"), with(want, says("something that is no URL")))
	}
	for _, s := range []int{302, 303, 307} {
		add(fmt.Sprint(s), status(s, "Location", "https://elsewhere.example/"),
			with(outcome(relay.Retry, CodeRedirect, s), trouble))
	}
	plain(relay.Reject, 400, 402, 404, 405, 406, 411, 412, 413, 414, 415, 416, 417, 418, 422, 423, 424, 426, 428, 431, 451, 499)
	add("401", status(401), with(outcome(relay.Unavailable, CodeUnauthorized, 401), says("said 401 (check token_file")))
	add("403", status(403), outcome(relay.Unavailable, CodeForbidden, 403))
	add("407", status(407), outcome(relay.Unavailable, CodeEgress, 407))
	add("511", status(511), outcome(relay.Unavailable, CodeEgress, 511))
	plain(relay.Retry, 408, 409, 421, 425)
	add("410", status(410), with(outcome(relay.Reject, CodeGone, 410), pause))
	add("413 with Retry-After", status(413, "Retry-After", "7"), with(outcome(relay.Retry, "HTTP_413", 413), after(7*time.Second)))
	add("429", status(429), outcome(relay.Unavailable, CodeRateLimited, 429))
	add("429 with Retry-After", status(429, "Retry-After", "30"),
		with(outcome(relay.Unavailable, CodeRateLimited, 429), after(30*time.Second)))
	add("429 with garbage", status(429, "Retry-After", "soon"), outcome(relay.Unavailable, CodeRateLimited, 429))
	add("503 with Retry-After", status(503, "Retry-After", "30"),
		with(outcome(relay.Unavailable, CodeOverloaded, 503), after(30*time.Second)))
	add("503 with Retry-After 0", status(503, "Retry-After", "0"), outcome(relay.Unavailable, CodeOverloaded, 503))
	add("503 with garbage", status(503, "Retry-After", "-1"), with(outcome(relay.Retry, "HTTP_503", 503), trouble))
	add("500 with Retry-After", status(500, "Retry-After", "9"), with(outcome(relay.Retry, "HTTP_500", 500), after(9*time.Second)))
	add("422 with Retry-After", status(422, "Retry-After", "9"), outcome(relay.Reject, "HTTP_422", 422))
	plain(relay.Retry, 500, 501, 505, 507, 508, 520, 599)
	for _, s := range []int{502, 503, 504} {
		add(fmt.Sprint(s), status(s), with(outcome(relay.Retry, fmt.Sprintf("HTTP_%d", s), s), trouble))
	}
	for _, r := range rows {
		t.Run(r.name, func(t *testing.T) {
			same(t, deliver(t, newDestination(t, newServer(t, r.answer).URL), newEvent()), r.want)
		})
	}
}

// What a server of net/http would not send.
func TestRawAnswers(t *testing.T) {
	ok := relay.Outcome{Kind: relay.Published, Receipt: "200"}
	breach := func(receipt string) relay.Outcome {
		return relay.Outcome{Kind: relay.Retry, Code: CodeProtocol, Receipt: receipt}
	}
	// Nothing that could be read as an answer came, so whether it was processed is open.
	noAnswer := relay.Outcome{Kind: relay.Retry, Code: CodeProtocol, Uncertain: true}
	const end = "Content-Length: 0\r\n\r\n"
	for _, tt := range []struct {
		name, answer string
		want         relay.Outcome
	}{
		{"status 099", "HTTP/1.1 099 Low\r\n" + end, breach("99")},
		{"status 000", "HTTP/1.1 000 None\r\n" + end, breach("0")},
		{"status 600", "HTTP/1.1 600 High\r\n" + end, breach("600")},
		{"status 999", "HTTP/1.1 999 High\r\n" + end, breach("999")},
		{"status of four digits", "HTTP/1.1 2000 OK\r\n" + end, noAnswer},
		{"status no number", "HTTP/1.1 abc OK\r\n" + end, noAnswer},
		{"101", "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\nbytes", breach("101")},
		{"101 without Upgrade", "HTTP/1.1 101 Switching Protocols\r\n\r\n", breach("101")},
		{"1xx before", "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 102 Processing\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" +
			"HTTP/1.1 200 OK\r\n" + end, ok},
		{"1xx flood", strings.Repeat("HTTP/1.1 102 Processing\r\nX: "+strings.Repeat("x", 1000)+"\r\n\r\n", 100), noAnswer},
		{"huge headers", "HTTP/1.1 200 OK\r\nX: " + strings.Repeat("x", 70<<10) + "\r\n" + end, noAnswer},
		{"big headers", "HTTP/1.1 200 OK\r\nX: " + strings.Repeat("x", 50<<10) + "\r\n" + end, ok},
		{"not HTTP", "SSH-2.0-OpenSSH_9.2\r\n", noAnswer},
		{"HTTP/0.9", "<html></html>\r\n\r\n", noAnswer},
		{"bad header line", "HTTP/1.1 200 OK\r\nno colon\r\n" + end, noAnswer},
		{"two lengths", "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab", noAnswer},
		{"negative length", "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n", noAnswer},
		{"HTTP/1.0", "HTTP/1.0 200 OK\r\n" + end, ok},

		{"broken chunks", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhelloXX", ok},
		{"chunk size no number", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", ok},
		{"gzip that is none", "HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 5\r\n\r\nplain", ok},
		{"length too short", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nlonger than two", ok},
		{"broken body of a failure", "HTTP/1.1 422 No\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhelloXX",
			relay.Outcome{Kind: relay.Reject, Code: "HTTP_422", Receipt: "422", Message: "hello"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			start := time.Now()
			same(t, deliver(t, newDestination(t, rawAnswer(t, tt.answer)), newEvent()), tt.want)
			if took := time.Since(start); took >= bodyTimeout {
				t.Errorf("took %s: it waited for more than there is", took)
			}
		})
	}
}

// A body that is cut off, slow or endless does not undo the status, and costs at most the time that a body gets.
func TestBodies(t *testing.T) {
	const head = "HTTP/1.1 %d X\r\nContent-Length: 1000000\r\n\r\nsome"
	endless := func(c net.Conn) {
		line := strings.Repeat("y", 1<<10)
		for {
			if _, err := io.WriteString(c, line); err != nil {
				return
			}
		}
	}
	for name, after := range map[string]func(net.Conn){
		"cut off": func(c net.Conn) { _ = c.Close() },
		"reset":   reset,
		"slow":    func(c net.Conn) { _, _ = c.Read(make([]byte, 1)) }, // until the client hangs up
		"endless": endless,
	} {
		for code, want := range map[int]relay.Outcome{
			200: {Kind: relay.Published, Receipt: "200"},
			422: {Kind: relay.Reject, Code: "HTTP_422", Receipt: "422", Message: "422 Unprocessable Entity: some"},
		} {
			t.Run(fmt.Sprint(name, code), func(t *testing.T) {
				t.Parallel()
				url := rawServer(t, func(_ int, c net.Conn, r *bufio.Reader) {
					if readRequest(r) == nil {
						_, _ = fmt.Fprintf(c, head, code)
						if name == "reset" {
							time.Sleep(50 * time.Millisecond) // a reset at once takes the bytes with it
						}
						after(c)
					}
				})
				start := time.Now()
				same(t, deliver(t, newDestination(t, url), newEvent()), want)
				if took := time.Since(start); took > bodyTimeout+time.Second {
					t.Errorf("took %s, more than the body's %s", took, bodyTimeout)
				}
			})
		}
	}
}

// The message shows what the endpoint says, cut, on one line, and without what it echoes of our secrets.
func TestMessageOfAFailure(t *testing.T) {
	body := "line\n\tone\x00\x1b[31m é \xff token-abc/def s3cret " + "query-value " + strings.Repeat("z", 100_000)
	server := newServer(t, func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusBadRequest)
		_, _ = io.WriteString(w, body)
	})
	d := newDestination(t, server.URL+"/hook?key=query-value", func(c *Config) {
		c.Signing.Hex = true
		c.Endpoint.SecretFiles = []string{secretFile(t, "s3cret")}
		c.Endpoint.TokenFile = secretFile(t, "token-abc/def")
	})
	got := deliver(t, d, newEvent()).Message
	want := "400 Bad Request: line one [31m é \uFFFD [redacted] [redacted] [redacted] zzz"
	if !strings.HasPrefix(got, want) {
		t.Errorf("message %q\nwant %q", got, want)
	}
	if n := len([]rune(got)); n > 550 {
		t.Errorf("message of %d characters", n)
	}
	if got := (credentials{token: "e"}).redact("eee", nil); got != strings.Repeat("[redacted]", 3) {
		t.Errorf("a token of one letter: %q", got)
	}
	// What is cut in the middle of a secret would show half of it.
	body = strings.Repeat("a", maxMessage-10) + "token-abc/def"
	if got := deliver(t, d, newEvent()).Message; strings.Contains(got, "token") {
		t.Errorf("half a token is shown: %q", got[len(got)-40:])
	}
}

// Error pages show the URL, but with its query taken apart or its & escaped. A value is hidden as it was written and as it reads.
func TestQueryIsNotShown(t *testing.T) {
	for _, query := range []string{
		"x=1&token=se%2bcret%3d", "token=se%20cret&x=1", "x=1;token=secret", "x=1&secret", "x=1&token=se%zzcret", "token=se%2Bcret%3D&x=1",
	} {
		server := newServer(t, func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(http.StatusBadRequest)
			_, _ = fmt.Fprint(w, html.EscapeString(r.URL.RequestURI()), " ", r.URL.Query())
		})
		d := newDestination(t, server.URL+"/hook?"+query)
		if got := deliver(t, d, newEvent()).Message; strings.Contains(got, "cret") || !strings.Contains(got, "/hook?") {
			t.Errorf("%s: message %q", query, got)
		}
	}
}

func TestUnauthorizedPausesAfterThree(t *testing.T) {
	var answer atomic.Int32
	server := newServer(t, func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(int(answer.Load())) })
	d := newDestination(t, server.URL)
	for _, step := range []struct {
		status    int
		wantPause []bool
	}{
		{401, []bool{false, false, true, true}},
		{200, []bool{false}},
		{401, []bool{false, false}},
		{403, []bool{false, false, false, false, true, true}},
		{500, []bool{false}},
		{403, []bool{false}},
	} {
		answer.Store(int32(step.status))
		for i, want := range step.wantPause {
			if got := deliver(t, d, newEvent()); got.Pause != want {
				t.Errorf("%d, number %d in a row: pause %v, want %v", step.status, i+1, got.Pause, want)
			}
		}
	}
	if n := len(d.streaks.of); n != 1 {
		t.Errorf("%d endpoints with a streak, want the one of 403", n)
	}
}

// 421: once more, on a connection of its own.
func TestMisdirected(t *testing.T) {
	var requests atomic.Int32
	first := ""
	server := newServer(t, func(w http.ResponseWriter, r *http.Request) {
		if requests.Add(1); requests.Load() == 1 {
			first = r.RemoteAddr
		}
		if r.RemoteAddr == first {
			w.WriteHeader(http.StatusMisdirectedRequest)
		}
	})
	d := newDestination(t, server.URL)
	same(t, deliver(t, d, newEvent()), relay.Outcome{Kind: relay.Published, Receipt: "200"})
	if n := requests.Load(); n != 2 {
		t.Errorf("%d requests, want 2", n)
	}
}

func TestStrictProfile(t *testing.T) {
	a := newAnswers(Strict, nil)
	for status := range 1000 {
		is, _ := a.judge(status, http.Header{"Retry-After": {"5"}, "Location": {"/"}}, time.Now(), time.Hour)
		want := answer{kind: relay.Retry, code: CodeProtocol, hint: protocolBreach.hint}
		switch status / 100 {
		case 2:
			want = answer{kind: relay.Published}
		case 4:
			want = answer{kind: relay.Reject, code: fmt.Sprintf("HTTP_%d", status)}
		case 5:
			want = answer{kind: relay.Retry, code: fmt.Sprintf("HTTP_%d", status)}
		}
		if is != want {
			t.Errorf("%d: %+v, want %+v", status, is, want)
		}
	}
}

// Nothing but 2xx is ever a success.
func TestOnlyTwoHundredsArePublished(t *testing.T) {
	for _, profile := range []Profile{Default, Strict} {
		a := newAnswers(profile, nil)
		for status := range 1000 {
			is, _ := a.judge(status, http.Header{}, time.Now(), time.Hour)
			if got, want := is.kind == relay.Published, status/100 == 2; got != want {
				t.Errorf("%s: %d is published: %v", profile, status, got)
			}
		}
	}
}
