package browsertest

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// actTime bounds one step in a browser.
const actTime = 30 * time.Second

// tab is a page of a real browser, of which everything is noted that goes wrong in it.
type tab struct {
	t   *testing.T
	ctx context.Context

	mu       sync.Mutex
	problems []string
}

// newTab is the first tab of a browser of its own.
func newTab(t *testing.T) *tab {
	t.Helper()
	ctx := Start(t)
	b := &tab{t: t, ctx: ctx}
	if err := chromedp.Listen(ctx, b.note); err != nil {
		t.Fatal(err)
	}
	b.do(call(network.Enable, network.EnableParams{}), call(log.Enable, cdp.Empty{}), call(runtime.Enable, cdp.Empty{}))
	b.wear(looks[0])
	return b
}

// call is a command of the browser's own protocol.
func call[P, R any](command cdp.Command[P, R], params P) chromedp.Action[chromedp.Void] {
	return chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		_, err := cdp.Call(ctx, t, command, params)
		return err
	})
}

// note keeps what a developer would see in red.
func (b *tab) note(event any) {
	switch e := event.(type) {
	case *runtime.EventConsoleAPICalled:
		if e.Type != runtime.ConsoleAPICalledTypeLog {
			var words []string
			for _, a := range e.Args {
				words = append(words, string(a.Value))
			}
			b.problem("console: %s", strings.Join(words, " "))
		}
	case *runtime.EventExceptionThrown:
		b.problem("exception: %v", e.ExceptionDetails)
	case *log.EventEntryAdded:
		if e.Entry.Level == log.EntryLevelError || e.Entry.Level == log.EntryLevelWarning {
			b.problem("log: %s %s", e.Entry.Text, e.Entry.URL)
		}
	case *network.EventLoadingFailed:
		if !e.Canceled && e.Type != network.ResourceTypeEventSource { // a stream ends with its page
			b.problem("request failed: %s %s", e.Type, e.ErrorText)
		}
	case *network.EventResponseReceived:
		if e.Response.Status >= 400 {
			b.problem("status %d: %s", e.Response.Status, e.Response.URL)
		}
	}
}

func (b *tab) problem(format string, args ...any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.problems = append(b.problems, fmt.Sprintf(format, args...))
}

// took returns the problems so far and forgets them.
func (b *tab) took() (problems []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	problems, b.problems = b.problems, nil
	return problems
}

func (b *tab) do(actions ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, actTime)
	defer cancel()
	if err := chromedp.Do(ctx, actions...); err != nil {
		b.t.Fatalf("in the browser: %v; problems: %q", err, b.took())
	}
}

// open goes to a page.
func (b *tab) open(address string) {
	b.t.Helper()
	b.do(chromedp.Navigate(address), chromedp.WaitReady("main h1"))
}

// look is how a page is looked at.
type look struct {
	name          string
	width, height int64
	scheme        string
}

var looks = []look{
	{"wide-light", 1440, 900, "light"},
	{"wide-dark", 1440, 900, "dark"},
	{"narrow-light", 375, 812, "light"},
	{"narrow-dark", 375, 812, "dark"},
}

func (b *tab) wear(l look) {
	b.t.Helper()
	b.do(chromedp.EmulateViewport(l.width, l.height), call(emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: l.scheme}},
	}))
}

// js runs a script and returns what it gives.
func js[T any](b *tab, script string) T {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, actTime)
	defer cancel()
	result, err := chromedp.Run(ctx, chromedp.Evaluate[T](script))
	if err != nil {
		b.t.Fatalf("in the browser: %v; problems: %q", err, b.took())
	}
	return result
}

// until waits until an expression is true.
func (b *tab) until(expression string) {
	b.t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for !js[bool](b, "!!("+expression+")") {
		if time.Now().After(deadline) {
			b.t.Fatalf("in the browser, this has not become true: %s\n%s", expression, js[string](b, "document.body.innerText"))
		}
		b.do(chromedp.Sleep(50 * time.Millisecond))
	}
}

// shoot takes a picture of the whole page, and keeps it in $PILLARBOX_SCREENSHOTS if that is set.
func (b *tab) shoot(name string) {
	b.t.Helper()
	folder := os.Getenv("PILLARBOX_SCREENSHOTS")
	if folder == "" {
		folder = b.t.TempDir()
	}
	ctx, cancel := context.WithTimeout(b.ctx, actTime)
	defer cancel()
	picture, err := chromedp.Run(ctx, func(ctx context.Context, t *chromedp.Target) ([]byte, error) {
		beyond := true
		shot, err := cdp.Call(ctx, t, page.CaptureScreenshot, page.CaptureScreenshotParams{CaptureBeyondViewport: &beyond})
		return shot.Data, err
	})
	if err != nil || len(picture) < 1000 {
		b.t.Fatalf("the picture %s has %d bytes: %v", name, len(picture), err)
	}
	if err := os.WriteFile(filepath.Join(folder, name+".png"), picture, 0o600); err != nil {
		b.t.Fatal(err)
	}
}
