package access_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/pillarbox-dev/pillarbox/dashboard/access"
	"github.com/pillarbox-dev/pillarbox/internal/browsertest"
)

// browser starts a real one, for which every name is this machine. Without TLS and with another name than localhost it sends no
// Sec-Fetch-Site: what is left is what old browsers send.
func browser(t *testing.T) context.Context {
	t.Helper()
	return browsertest.Start(t, chromedp.Flag("host-resolver-rules", "MAP *.example 127.0.0.1"))
}

// steps runs steps in a browser, and returns the text of the page that they lead to.
func steps(t *testing.T, browser context.Context, do ...chromedp.Action[chromedp.Void]) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(browser, 20*time.Second)
	defer cancel()
	if err := chromedp.Do(ctx, do...); err != nil {
		t.Fatalf("in the browser: %v", err)
	}
	text, err := chromedp.Run(ctx, chromedp.Evaluate[string]("document.body.innerText"))
	if err != nil {
		t.Fatalf("in the browser: %v", err)
	}
	return text
}

// acting counts what is done behind a guard, and shows a form that does it.
func acting(done *atomic.Int32) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			done.Add(1)
		}
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		_, _ = fmt.Fprintf(w, `<!doctype html><title>behind</title><h1 class="%s">%s: %s by %s</h1>
			<form method="post"><button>act</button></form>`, r.Method, r.URL.Path, r.Method, access.Who(r).Name)
	})
}

// evil is another site whose page acts on a target as soon as somebody clicks.
func evil(t *testing.T, target string) (address string) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		_, _ = fmt.Fprintf(w, `<!doctype html><title>evil</title><h1>evil</h1>
			<form method="post" action="%s"><button>win</button></form>`, target)
	}))
	t.Cleanup(server.Close)
	return named(server.URL, "evil.example")
}

func named(url, host string) string { return strings.Replace(url, "127.0.0.1", host, 1) }

// A person logs in and acts, without TLS; another site cannot act for that person, neither with the session nor on a process that
// lets everybody on this machine in.
func TestInABrowser(t *testing.T) {
	g := newGate(t, "")
	a := g.access(access.Config{Users: []access.Credential{
		{Name: "ops", Role: access.Operator, Secret: access.File(g.files["ops"])},
	}})
	var done atomic.Int32
	server := httptest.NewServer(a.Wrap(acting(&done)))
	t.Cleanup(server.Close)
	home, b := named(server.URL, "outbox.example"), browser(t)

	text := steps(t, b, chromedp.Navigate(home+"/jobs"), chromedp.WaitReady("#password"),
		chromedp.SendKeys("#name", "ops"), chromedp.SendKeys("#password", password), chromedp.Submit("#password"),
		chromedp.WaitReady("h1.GET"))
	if !strings.Contains(text, "/jobs: GET by ops") {
		t.Fatalf("after the login the page says %s", text)
	}
	text = steps(t, b, chromedp.Click("button"), chromedp.WaitReady("body:has(h1.POST), body:not(:has(h1))"))
	if done.Load() != 1 {
		t.Fatalf("our own form was not let through: %s", text)
	}
	steps(t, b, chromedp.Navigate(evil(t, home+"/jobs")), chromedp.Click("button"), chromedp.WaitReady("#password"))
	if done.Load() != 1 {
		t.Error("another site has acted with the session")
	}

	open := g.access(access.Config{})
	local := httptest.NewServer(open.Wrap(acting(&done)))
	t.Cleanup(local.Close)
	if text = steps(t, b, chromedp.Navigate(local.URL+"/"), chromedp.WaitReady("h1")); !strings.Contains(text, "by local operator") {
		t.Fatalf("on this machine the page says %s", text)
	}
	text = steps(t, b, chromedp.Navigate(evil(t, local.URL+"/")), chromedp.Click("button"),
		chromedp.WaitReady("body:not(:has(button))"))
	if done.Load() != 1 || !strings.Contains(text, "another site") {
		t.Errorf("another site has acted on this machine's process: %s", text)
	}
	text = steps(t, b, chromedp.Navigate(named(local.URL, "rebound.example")+"/"), chromedp.WaitReady("body"))
	if !strings.Contains(text, "not this machine's") {
		t.Errorf("under another name it says %s", text)
	}
}
