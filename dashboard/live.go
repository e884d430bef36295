package dashboard

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/pillarbox-dev/pillarbox/dashboard/access"
)

// Limits on live pages: how many at once, how often each is looked at, and when a browser has to come again, so that a stream
// that nobody reads any more does not stay for ever. A page that takes the database long is looked at less often, so that no
// stream costs more than a twentieth of a connection.
const (
	maxStreams  = 64
	liveEvery   = 2 * time.Second
	liveRest    = 20 // times what the last look took
	streamTime  = 10 * time.Minute
	writeTime   = 10 * time.Second // for one message
	livePrefix  = "live-"          // of the templates that are sent again
	maxLivePage = 4 << 10          // bytes of the address
)

// fragments are the parts of a page that are sent again when they change.
type fragments struct {
	html map[string]string // by the name of the template, without the prefix
	err  error
}

type fragmentsKey struct{}

func fragmentsOf(ctx context.Context) *fragments {
	into, _ := ctx.Value(fragmentsKey{}).(*fragments)
	return into
}

// hasLive tells whether a page has parts that are sent again.
func (d *Dashboard) hasLive(name string) bool { return len(d.liveNames(name)) > 0 }

func (d *Dashboard) liveNames(name string) (names []string) {
	for _, t := range d.templates[name].Templates() {
		if part, ok := strings.CutPrefix(t.Name(), livePrefix); ok {
			names = append(names, part)
		}
	}
	slices.Sort(names)
	return names
}

// fragments makes the live parts of a page.
func (d *Dashboard) fragments(name string, p page, into *fragments) error {
	for _, part := range d.liveNames(name) {
		var out bytes.Buffer
		if err := d.templates[name].ExecuteTemplate(&out, livePrefix+part, p); err != nil {
			return err
		}
		into.html[part] = out.String()
	}
	return nil
}

// live sends the parts of a page that have changed, every two seconds, until the browser leaves, its session ends, the stream has
// lasted long enough, or Run ends.
func (d *Dashboard) live(w http.ResponseWriter, r *http.Request) {
	target, err := url.ParseRequestURI(r.URL.Query().Get("page"))
	if err != nil || len(r.URL.RawQuery) > maxLivePage || target.Host != "" || strings.HasPrefix(target.Path, "//") ||
		target.Path == "/live" {
		http.Error(w, "page has to be the address of a page of this dashboard.", http.StatusBadRequest)
		return
	}
	select {
	case d.streams <- struct{}{}:
		defer func() { <-d.streams }()
	default:
		w.Header().Set("Retry-After", "10")
		http.Error(w, "Too many pages are live already. Reload this one to see what is new.", http.StatusServiceUnavailable)
		return
	}
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("X-Accel-Buffering", "no")
	s := &stream{to: w, control: http.NewResponseController(w), sent: map[string]string{}}
	ctx, cancel := context.WithTimeout(r.Context(), streamTime)
	defer cancel()
	for {
		into, start := &fragments{html: map[string]string{}}, time.Now()
		again := r.Clone(context.WithValue(ctx, fragmentsKey{}, into))
		again.URL, again.RequestURI = target, target.RequestURI()
		d.pages.ServeHTTP(discard{h: http.Header{}}, again)
		if s.send(into) != nil {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-d.ended:
			return
		case <-time.After(max(liveEvery, liveRest*time.Since(start))):
		}
		if !access.Still(r) {
			return
		}
	}
}

// stream writes server-sent events.
type stream struct {
	to      http.ResponseWriter
	control *http.ResponseController
	sent    map[string]string
}

// send writes what has changed since the last time; nothing: a comment, so that a browser that is gone is noticed.
func (s *stream) send(f *fragments) error {
	// The server's deadline is for answers that end. Each message gets its own.
	if err := s.control.SetWriteDeadline(time.Now().Add(writeTime)); err != nil {
		return err
	}
	var out bytes.Buffer
	if f.err != nil {
		out.WriteString("event: stale\ndata: {}\n\n")
	} else {
		changed := map[string]string{}
		for name, html := range f.html {
			if s.sent[name] != html {
				changed[name], s.sent[name] = html, html
			}
		}
		data, err := json.Marshal(changed)
		if err != nil {
			return err
		}
		fmt.Fprintf(&out, "event: parts\ndata: %s\n\n", data)
	}
	if _, err := out.WriteTo(s.to); err != nil {
		return err
	}
	return s.control.Flush()
}

// discard takes what a page would write besides its parts.
type discard struct{ h http.Header }

func (d discard) Header() http.Header         { return d.h }
func (d discard) Write(p []byte) (int, error) { return len(p), nil }
func (d discard) WriteHeader(int)             {}
