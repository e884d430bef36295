package browsertest

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/pillarbox-dev/pillarbox/ops"
)

const text = "document.body.innerText"

// poison commits an order that the receiver refuses, and waits until it stands in quarantine.
func (r *rig) poison(n int) int64 {
	r.t.Helper()
	seq := r.enqueue(order(n, badOrder(n)))
	r.until("it is quarantined", func() bool { return r.status("suppliers", seq) == "QUARANTINED" })
	return seq
}

// TestRepair: an operator sees on the first page that something is wrong, finds the event, repairs it, sees it published, and
// reads in the log what was done.
func TestRepair(t *testing.T) {
	r := newRig(t, "")
	poison := r.poison(7)
	b := newTab(t)
	b.open(r.address + "/")
	b.until(text + `.includes("suppliers has a quarantined delivery that waits for you")`) // live, if the page was too early
	b.do(chromedp.Click(`.attention a[href="/quarantine?destination=suppliers"]`), chromedp.WaitReady(".rows"))
	b.do(chromedp.Click(fmt.Sprintf(`.rows a[href="/events/%d"]`, poison)), chromedp.WaitReady("#h-payload"))
	b.do(chromedp.Click(".act summary"), chromedp.WaitVisible("#payload"))

	js[any](b, `document.querySelector("#payload").value = document.querySelector("#payload").value.replace('"twelve"', '"twelve')`)
	b.do(chromedp.SendKeys("#repair-reason", "the shop sent a word, the customer confirmed 12"), chromedp.Submit("#repair-reason"),
		chromedp.WaitVisible(".act .problem"))
	const problem = `document.querySelector(".act .problem").innerText`
	if got := js[string](b, problem); !strings.Contains(got, "not JSON, line 10, column") {
		t.Errorf("a broken payload is refused with %q", got)
	}
	if got := js[string](b, `document.querySelector("#payload").value`); !strings.Contains(got, `"twelve`) {
		t.Errorf("what was typed is gone: %q", got)
	}
	b.took() // the browser complains of the answer 422
	js[any](b, `document.querySelector("#payload").value = document.querySelector("#payload").value.replace('"twelve', '12')`)
	b.do(chromedp.Submit("#repair-reason"), chromedp.WaitVisible(".notice-good"))
	b.until(`document.querySelector("[data-live=deliveries]").innerText.includes("PUBLISHED")`) // without a reload
	if problems := b.took(); len(problems) > 0 {
		t.Errorf("the browser complains of %q", problems)
	}
	want := strings.Replace(goodOrder(7), `"quantity":1`, `"quantity":12`, 1)
	if got := r.receiver.bodies(); len(got) != 1 || got[0] != want {
		t.Errorf("the receiver has %q, want %q", got, want)
	}
	b.open(r.address + "/log")
	story := js[string](b, `document.querySelector(".history").innerText`)
	for _, part := range []string{"local operator", "repair", "suppliers", fmt.Sprint("event ", poison), "customer confirmed 12"} {
		if !strings.Contains(story, part) {
			t.Errorf("the log does not tell %q:\n%s", part, story)
		}
	}
	before := js[string](b, `document.querySelector(".history details").textContent`)
	if !strings.Contains(before, "twelve") || !strings.Contains(before, "12") {
		t.Errorf("the log does not have both payloads: %s", before)
	}
}

// TestTwoOperators: the second of two who look at the same event is told that it is no longer what the page shows, and nothing is
// done.
func TestTwoOperators(t *testing.T) {
	r := newRig(t, "")
	poison := r.poison(1)
	page := fmt.Sprintf("%s/events/%d", r.address, poison)
	b := newTab(t)
	b.open(page)
	b.do(chromedp.SendKeys("#reason-suppliers", "not worth it"))
	detail, err := r.ops.Show(t.Context(), ops.EventRef{Seq: poison})
	r.must(err)
	target := ops.Target{Destination: "suppliers", Seq: poison, Version: detail.Deliveries[0].Version}
	_, err = r.ops.Retry(t.Context(), target, ops.Action{By: "grace", Reason: "the supplier has mended it"})
	r.must(err)
	r.until("it has failed again", func() bool { return r.status("suppliers", poison) == "QUARANTINED" })
	b.do(chromedp.Click(".act button.danger"), chromedp.WaitVisible(".notice-bad"))
	notice := js[string](b, `document.querySelector(".notice-bad").innerText`)
	if !strings.Contains(notice, "Nothing was done") || !strings.Contains(notice, "QUARANTINED") {
		t.Errorf("the second operator is told %q", notice)
	}
	if got := r.status("suppliers", poison); got != "QUARANTINED" {
		t.Errorf("it is %s: the second operator has won", got)
	}
	if history := js[string](b, `document.querySelector(".history").innerText`); !strings.Contains(history, "grace") {
		t.Errorf("the second operator is not shown what the first has done: %q", history)
	}
	b.do(chromedp.SendKeys("#reason-suppliers", "seen it, still not worth it"), chromedp.Click(".act button.danger"),
		chromedp.WaitVisible(".notice-good"))
	if got := r.status("suppliers", poison); got != "DISCARDED" {
		t.Errorf("it is %s after the second look", got)
	}
}

// TestLive: numbers move while the page stays, and a stream ends with the relay, whose stop it must not hold up (see newRig).
func TestLive(t *testing.T) {
	r := newRig(t, "")
	b := newTab(t)
	r.until("a relay has begun", func() bool {
		s, err := r.ops.Status(t.Context())
		return err == nil && len(s.Destinations) == 3
	})
	b.open(r.address + "/")
	js[any](b, `window.stays = true`)
	last := `Number([...document.querySelectorAll(".tiles div")].find(e => e.innerText.includes("Last number"))
		.querySelector("dd").innerText)`
	if got := js[int](b, last); got != 0 {
		t.Errorf("the last number is %d before there is an event", got)
	}
	for n := range 5 {
		r.enqueue(order(n, goodOrder(n)))
	}
	b.until(last + " === 5 && window.stays")
	b.until(`document.querySelector("[data-live=destinations]").innerText.includes("running")`)
	r.poison(9)
	b.until(`document.querySelector("[data-live=summary]").innerText.includes("to look at") && window.stays`)
	b.until(`document.querySelector(".plot .stroke.line-0")`) // the first two samples
	if problems := b.took(); len(problems) > 0 {
		t.Errorf("the browser complains of %q", problems)
	}
}

// TestWithoutJavaScript reads pages and retries an event in a browser that runs no script.
func TestWithoutJavaScript(t *testing.T) {
	r := newRig(t, "")
	poison := r.poison(1)
	b := newTab(t)
	b.do(call(emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: true}))
	for path, want := range map[string]string{
		"/": "Published per second", "/events": "OrderPlaced", "/quarantine": "HTTP_422", fmt.Sprintf("/events/%d", poison): "twelve",
		"/destinations/suppliers": "the only one", "/database": "outbox_event", "/log": "Nobody has done anything yet",
	} {
		b.do(chromedp.Navigate(r.address + path))
		if html := b.html(); !strings.Contains(html, want) {
			t.Errorf("%s without JavaScript has no %q", path, want)
		}
	}
	b.do(chromedp.Navigate(fmt.Sprintf("%s/events/%d", r.address, poison)))
	b.do(chromedp.Focus("#reason-suppliers"), call(input.InsertText, input.InsertTextParams{Text: "by hand"}),
		chromedp.KeyEvent(kb.Enter))
	r.until("it was retried", func() bool {
		page, err := r.ops.Log(t.Context(), ops.LogFilter{Seq: poison}, ops.Page{})
		return err == nil && len(page.Entries) == 1 && page.Entries[0].Action == "retry" && page.Entries[0].Reason == "by hand"
	})
}

// html is what the browser has of a page, read without a script.
func (b *tab) html() string {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, actTime)
	defer cancel()
	html, err := chromedp.Run(ctx, chromedp.OuterHTML("html"))
	if err != nil {
		b.t.Fatal(err)
	}
	return html
}

// TestKeyboard goes through the first page with the Tab key: the skip link first, then in the order of the page, everything that
// can be focused is seen, and shows that it has the focus.
func TestKeyboard(t *testing.T) {
	r := newRig(t, "")
	r.poison(1)
	b := newTab(t)
	b.wear(looks[0])
	b.open(r.address + "/quarantine")
	var names []string
	for range 60 {
		b.do(chromedp.KeyEvent(kb.Tab))
		step := js[[]any](b, `(() => {
			const e = document.activeElement, last = window.last;
			window.last = e;
			const box = e.getBoundingClientRect(), style = getComputedStyle(e);
			return [e.tagName + " " + (e.textContent.trim() || e.name || e.id).slice(0, 24),
				e === document.body || !last || last === document.body ||
					!!(last.compareDocumentPosition(e) & Node.DOCUMENT_POSITION_FOLLOWING),
				e === document.body || box.width > 0 && box.height > 0 && box.top >= 0,
				e === document.body || style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 2];
		})()`)
		name := step[0].(string)
		if strings.HasPrefix(name, "BODY") {
			break
		}
		for i, what := range []string{"comes after what followed it", "cannot be seen", "does not show that it has the focus"} {
			if step[i+1] != true {
				t.Errorf("after %q, the focus goes to %s, which %s", names, name, what)
			}
		}
		names = append(names, name)
	}
	if len(names) < 20 || !strings.HasPrefix(names[0], "A Skip to the content") || names[1] != "A Pillarbox" {
		t.Errorf("the Tab key leads to %q", names)
	}
	b.open(r.address + "/quarantine")
	b.do(chromedp.KeyEvent(kb.Tab), chromedp.KeyEvent(kb.Enter), chromedp.KeyEvent(kb.Tab))
	if !js[bool](b, `document.querySelector("main").contains(document.activeElement)`) {
		t.Errorf("the skip link leads to %s", js[string](b, "document.activeElement.outerHTML"))
	}
	b.wear(looks[2])
	b.open(r.address + "/")
	if js[bool](b, `document.querySelector("nav[popover]").checkVisibility()`) {
		t.Error("the menu covers a narrow page before it is asked for")
	}
	b.do(chromedp.Click(".menu"), chromedp.WaitVisible(`nav a[href="/jobs"]`))
	b.shoot("narrow-light menu")
	b.do(chromedp.Click(`nav a[href="/jobs"]`), chromedp.WaitReady("main h1"))
	b.until(`document.querySelector("h1").innerText === "Jobs"`)
}

// TestManyAtOnce retries what was picked, and starts a job for all.
func TestManyAtOnce(t *testing.T) {
	r := newRig(t, "")
	var seqs []int64
	for n := range 5 {
		seqs = append(seqs, r.poison(n))
	}
	b := newTab(t)
	b.open(r.address + "/quarantine")
	b.do(chromedp.Click("tbody tr:nth-child(1) input[type=checkbox]"), chromedp.Click("tbody tr:nth-child(3) input[type=checkbox]"),
		chromedp.SendKeys("#reason", "duplicates of a test"), chromedp.Click(`button[value=discard]`),
		chromedp.WaitVisible(".notice-good"))
	if got := js[string](b, `document.querySelector(".notice-good").innerText`); !strings.Contains(got, "2 of 2 discarded") {
		t.Errorf("the page says %q", got)
	}
	for i, want := range []string{"QUARANTINED", "QUARANTINED", "DISCARDED", "QUARANTINED", "DISCARDED"} { // the newest stand first
		if got := r.status("suppliers", seqs[i]); got != want {
			t.Errorf("event %d is %s, want %s", seqs[i], got, want)
		}
	}
	b.do(chromedp.Click(`a[href*="kind=discard"]`), chromedp.WaitReady("#rate"))
	b.do(chromedp.SetValue(`select[name=destination]`, "suppliers"), chromedp.Click(`button[name=count]`),
		chromedp.WaitVisible(".notice-told"))
	if got := js[string](b, `document.querySelector(".notice-told").innerText`); !strings.Contains(got, "3 deliveries") {
		t.Errorf("the count says %q", got)
	}
	b.do(chromedp.SendKeys("#reason", "and the rest"), chromedp.Click("form button.main:not(.find button)"),
		chromedp.WaitReady("[data-live=progress]"))
	b.until(`document.querySelector("[data-live=progress]").innerText.includes("DONE")`)
	for _, seq := range seqs {
		if got := r.status("suppliers", seq); got != "DISCARDED" {
			t.Errorf("event %d is %s after the job", seq, got)
		}
	}
	if problems := b.took(); len(problems) > 0 {
		t.Errorf("the browser complains of %q", problems)
	}
}

// TestViewer: who only looks sees everything but the buttons, and the server refuses what the page does not offer.
func TestViewer(t *testing.T) {
	const token = "viewers-token-0123456789abcdef"
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte(token), 0o600); err != nil {
		t.Fatal(err)
	}
	r := newRig(t, fmt.Sprintf("dashboard: {tokens: [{name: auditor, role: viewer, file: %q}], mask: [customer]}\n", file))
	poison := r.poison(1)
	b := newTab(t)
	b.do(chromedp.Navigate(fmt.Sprintf("%s/events/%d", r.address, poison)), chromedp.WaitReady("#token"))
	b.do(chromedp.SendKeys("#token", token), chromedp.Submit("#token"), chromedp.WaitReady("#h-payload"))
	if got := js[int](b, `document.querySelectorAll("main form, main button").length`); got != 0 {
		t.Errorf("a viewer sees %d forms and buttons", got)
	}
	b.until(text + `.includes("auditor")`) // the style sheet shows the menu
	got := js[string](b, text)
	if strings.Contains(got, "Ada") || !strings.Contains(got, "(masked)") {
		t.Errorf("a viewer sees\n%s", got)
	}
	form := url.Values{"version": {"x"}, "reason": {"y"}}
	address := fmt.Sprintf("%s/events/%d/suppliers/retry", r.address, poison)
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, address, strings.NewReader(form.Encode()))
	r.must(err)
	request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	request.Header.Set("Authorization", "Bearer "+token)
	answer, err := (&http.Client{Timeout: 10 * time.Second}).Do(request)
	r.must(err)
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusForbidden {
		t.Errorf("a viewer's retry is answered %d, want 403", answer.StatusCode)
	}
	b.do(chromedp.Click(".who button"), chromedp.WaitReady("#token"))
}
