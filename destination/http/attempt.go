package http

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strconv"
	"sync"
	"time"

	"github.com/pillarbox-dev/pillarbox/relay"
)

// Limits on what is read of an answer's body.
const (
	maxExcerpt = 16 << 10 // bytes that are read for the message of a failure
	maxDrain   = 64 << 10 // bytes that are read in all, so that the connection can be used again
	// bodyTimeout bounds how long the body may take once the status is known: the lane waits for it.
	bodyTimeout = 2 * time.Second

	maxMessage = 500 // characters of the body that are put into the message
)

// attempt is one try to deliver one event. It is one send, or up to three.
type attempt struct {
	d           *Destination
	name        string // of the endpoint
	endpoint    Endpoint
	url         *url.URL
	client      *client
	message     message
	credentials credentials
}

// sent is what came of one send.
type sent struct {
	outcome relay.Outcome
	is      answer // what the answer means
	status  int    // 0: there was none
	stale   bool   // see trace.stale
}

// run sends, and sends again where the first answer, or its absence, says nothing about the event: each reason counts once,
// and none is charged.
func (a *attempt) run(ctx context.Context) relay.Outcome {
	transport := a.client.pooled
	var fresh, reread, uncertain bool
	// The transport may still be at work on what it was given, so a second send has a header of its own.
	for ; ; a.message.header = a.message.header.Clone() {
		s := a.send(ctx, transport)
		switch {
		case ctx.Err() != nil:
		case (s.stale || s.is.fresh) && !fresh:
			// A fresh connection: the next one of the pool may be dead as well.
			transport, fresh = a.client.fresh, true
			uncertain = uncertain || s.outcome.Uncertain
			continue
		case s.is.reread && !reread:
			reread = true
			a.d.files.forget() // whatever the file system says
			again, err := a.endpoint.credentials(a.d.files)
			if err != nil {
				s.outcome = paused(CodeConfig, err.Error())
				break
			}
			if !again.equal(a.credentials) {
				a.credentials = again
				continue
			}
		}
		if s.status > 0 && a.d.streaks.count(a.name, s.status, s.is.pauseAfter) {
			s.outcome.Pause = true
		}
		s.outcome.Uncertain = s.outcome.Uncertain || uncertain
		return s.outcome
	}
}

// send makes the one request and reads its answer.
func (a *attempt) send(ctx context.Context, transport *http.Transport) sent {
	if err := a.d.sign(&a.message, a.credentials, a.d.config.Now()); err != nil {
		return sent{outcome: paused(CodeConfig, err.Error())}
	}
	var t trace
	answer, err := transport.RoundTrip(a.request(httptrace.WithClientTrace(ctx, t.hooks())))
	if err != nil {
		out := failed(ctx, err, printable(a.credentials.redact(err.Error(), a.url)), &t)
		return sent{outcome: out, stale: t.stale(out)}
	}
	defer answer.Body.Close()
	// From here on the status decides; the body may be broken, slow or endless, and the time may run out.
	if answer.Body != http.NoBody {
		timer := time.AfterFunc(bodyTimeout, func() { answer.Body.Close() })
		defer timer.Stop()
	}
	return a.read(answer)
}

func (a *attempt) request(ctx context.Context) *http.Request {
	r := &http.Request{
		Method: a.d.config.Method, URL: a.url, Host: a.url.Host, Header: a.message.header,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Body: http.NoBody,
	}
	if body := a.message.body; len(body) > 0 {
		r.ContentLength = int64(len(body))
		r.Body = io.NopCloser(bytes.NewReader(body))
		// With it the transport may take another connection when nothing was written to the first.
		r.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil }
	}
	return r.WithContext(ctx)
}

// read makes an outcome of an answer.
func (a *attempt) read(got *http.Response) sent {
	status := got.StatusCode
	is, after := a.d.answers.judge(status, got.Header, a.d.config.Now(), a.d.config.MaxRetryAfter)
	s := sent{is: is, status: status}
	s.outcome = relay.Outcome{
		Kind: is.kind, Code: is.code, Receipt: strconv.Itoa(status), After: after, Trouble: is.trouble, Pause: is.pause,
	}
	if status == http.StatusSwitchingProtocols {
		s.outcome.Message = a.explain(got, is, nil)
		return s // what follows is no body
	}
	if is.kind == relay.Published {
		drain(got.Body, got.ContentLength, maxDrain)
		return s
	}
	excerpt, _ := io.ReadAll(io.LimitReader(got.Body, maxExcerpt))
	drain(got.Body, got.ContentLength-int64(len(excerpt)), maxDrain-maxExcerpt)
	s.outcome.Message = a.explain(got, is, excerpt)
	return s
}

// explain words a failure: the status, where it points, what the body says, what to do.
func (a *attempt) explain(got *http.Response, is answer, body []byte) string {
	text := strconv.Itoa(got.StatusCode)
	if name := http.StatusText(got.StatusCode); name != "" {
		text += " " + name
	}
	// Redacted before it is cut: half a secret is one too.
	show := func(text string) string { return excerpt(a.credentials.redact(text, a.url), maxMessage) }
	if location := got.Header.Get("Location"); is.redirect && location != "" {
		if to, err := a.url.Parse(location); err == nil {
			text += " to " + show(redactURL(to))
		} else {
			text += " to something that is no URL"
		}
	}
	if said := show(string(body)); said != "" {
		text += ": " + said
	}
	if is.hint != "" {
		text += " (" + is.hint + ")"
	}
	return text
}

// drain reads the rest of a body, so that its connection can be used again. What is longer than most is not worth it.
func drain(body io.Reader, length int64, most int64) {
	if length <= most {
		_, _ = io.CopyN(io.Discard, body, most)
	}
}

// streaks counts answers that pause an endpoint after a few in a row: 401 and 403.
type streaks struct {
	mu sync.Mutex
	of map[string]streak // by endpoint; those alone that have one
}

type streak struct{ status, length int }

// count notes an answer. It reports whether that makes most in a row; most is 0 for an answer that ends every streak.
func (s *streaks) count(endpoint string, status, most int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if most == 0 {
		delete(s.of, endpoint)
		return false
	}
	if s.of == nil {
		s.of = map[string]streak{}
	}
	now := s.of[endpoint]
	if now.status != status {
		now = streak{status: status}
	}
	now.length++
	s.of[endpoint] = now
	return now.length >= most
}
