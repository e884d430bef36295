package browsertest

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/pillarbox-dev/pillarbox/ops"
	"github.com/pillarbox-dev/pillarbox/outbox"
	"github.com/pillarbox-dev/pillarbox/relay"
)

// TestPages walks through all pages, at the width of a desk and of a telephone, in light and in dark. Nothing may go wrong in the
// browser, nothing may stick out, and every text has to stand out from what is behind it.
func TestPages(t *testing.T) {
	r := newRig(t, "consumers: [{destination: suppliers, inbox: {consumer: shipping}}]\n")
	poison := r.story()
	b := newTab(t)
	b.open(r.address + "/")
	b.until(`document.querySelectorAll(".plot").length === 2`) // two samples
	paths := []string{
		"/", "/events", "/events?statuses=FAILED&statuses=QUARANTINED&since=2020-01-01T00:00", "/events?from_seq=x",
		fmt.Sprintf("/events/%d", poison), "/events/1", "/quarantine", "/quarantine?destination=search",
		"/jobs", "/jobs/1", "/jobs/new?kind=retry&count=1&destination=suppliers",
		"/destinations", "/destinations/suppliers", "/destinations/audit", "/destinations/search", "/relays", "/kafka", "/consumers",
		"/log", "/database", "/tasks",
	}
	for _, l := range looks {
		b.wear(l)
		for _, path := range paths {
			b.open(r.address + path)
			b.sound(l, path)
			b.shoot(l.name + " " + strings.NewReplacer("/", "_", "?", " ", "&", " ").Replace(path))
		}
	}
}

// sound checks what has to hold of every page.
func (b *tab) sound(l look, path string) {
	b.t.Helper()
	for _, problem := range b.took() {
		b.t.Errorf("%s, %s: %s", path, l.name, problem)
	}
	if width := js[int64](b, "document.documentElement.scrollWidth"); width > l.width {
		b.t.Errorf("%s, %s: the page is %d wide, and the window %d: %s", path, l.name, width, l.width, js[string](b, widest))
	}
	if faint := js[[]string](b, faintTexts); len(faint) > 0 {
		b.t.Errorf("%s, %s: texts that hardly stand out: %q", path, l.name, faint)
	}
	if nameless := js[[]string](b, namelessFields); len(nameless) > 0 {
		b.t.Errorf("%s, %s: fields without a label, tables without a caption, images without a text: %q", path, l.name, nameless)
	}
	if got := js[[]int](b, `[document.querySelectorAll("h1").length, document.querySelectorAll("main").length,
		document.querySelectorAll("nav[aria-label]").length > 0 ? 1 : 0]`); got[0] != 1 || got[1] != 1 || got[2] != 1 {
		b.t.Errorf("%s, %s: h1, main and named nav elements: got %v, want one of each", path, l.name, got)
	}
}

// widest names what sticks out.
const widest = `[...document.querySelectorAll("body *")].filter(e => e.getBoundingClientRect().right > innerWidth + 1)
	.slice(0, 5).map(e => e.tagName + "." + e.className + " " + e.textContent.trim().slice(0, 40)).join(" | ")`

const namelessFields = `[...document.querySelectorAll(
	"input:not([type=hidden]), select, textarea, table, img, pre, progress"
)].filter(e => {
	if (e.tagName === "TABLE") return !e.caption;
	if (e.tagName === "IMG") return !e.hasAttribute("alt");
	if (e.tagName === "PRE") return !e.getAttribute("aria-label");
	return !(e.labels && e.labels.length) && !e.getAttribute("aria-label");
}).map(e => e.outerHTML.slice(0, 80))`

// faintTexts finds texts whose contrast to what is behind them is under 4.5, or 3 when they are large, by the rules of WCAG 2.
const faintTexts = `(() => {
	const canvas = document.createElement("canvas").getContext("2d", {willReadFrequently: true});
	const rgba = (color) => {
		canvas.clearRect(0, 0, 1, 1);
		canvas.fillStyle = color;
		canvas.fillRect(0, 0, 1, 1);
		return [...canvas.getImageData(0, 0, 1, 1).data].map((v, i) => i === 3 ? v / 255 : v);
	};
	const over = (top, below) => [0, 1, 2].map(i => top[i] * top[3] + below[i] * (1 - top[3])).concat(1);
	const behind = (e) => {
		const layers = [];
		for (; e; e = e.parentElement) layers.push(rgba(getComputedStyle(e).backgroundColor));
		return layers.reverse().reduce((below, top) => over(top, below), rgba(getComputedStyle(document.body).backgroundColor));
	};
	const luminance = (c) => {
		const [r, g, b] = c.slice(0, 3).map(v => v / 255).map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
		return 0.2126 * r + 0.7152 * g + 0.0722 * b;
	};
	const found = new Set();
	const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
	while (walk.nextNode()) {
		const e = walk.currentNode.parentElement;
		if (!walk.currentNode.textContent.trim() || !e.checkVisibility() || e.closest("option, script")) continue;
		const style = getComputedStyle(e), back = behind(e), front = over(rgba(style.color), back);
		const [high, low] = [luminance(front), luminance(back)].sort((x, y) => y - x);
		const ratio = (high + 0.05) / (low + 0.05);
		const size = parseFloat(style.fontSize), large = size >= 24 || (size >= 18.66 && style.fontWeight >= 700);
		if (ratio < (large ? 3 : 4.5))
			found.add(ratio.toFixed(2) + " " + e.tagName + "." + e.className + " " + walk.currentNode.textContent.trim().slice(0, 30));
	}
	return [...found];
})()`

// story lets everything happen that pages can show. It returns the number of the poison event.
func (r *rig) story() int64 {
	r.t.Helper()
	for n := range 30 {
		r.enqueue(order(n, goodOrder(n)))
	}
	poison := r.enqueue(order(31, badOrder(31)))
	other := r.enqueue(order(32, `{"order":"order-0032","quantity":"twelve","note":"<script>alert(1)</script> & \u003cb\u003e"}`))
	busy := r.enqueue(order(33, `{"order":"order-0033","state":"busy"}`))
	r.enqueue(outbox.Event{Topic: "audit", Type: "LoggedIn", Payload: json.RawMessage(`{"who":"ada"}`)})
	binary := r.enqueue(outbox.Event{Topic: "orders.raw", Type: "Scanned", PayloadBytes: []byte("\x00\x01\x02binary\xff")})
	r.until("the poison is quarantined, the busy one failed", func() bool {
		return r.status("suppliers", poison) == "QUARANTINED" && r.status("suppliers", other) == "QUARANTINED" &&
			r.status("suppliers", busy) == "FAILED" && r.status("suppliers", binary) == "PUBLISHED"
	})
	r.must(r.ops.Pause(r.t.Context(), "search", ops.Action{By: "grace", Reason: "the index is being rebuilt until noon"}))
	r.until("the relay has noticed the pause", func() bool { return strings.Contains(r.log.String(), "pause changed") })
	r.enqueue(outbox.Event{Topic: "search.item", Type: "ItemChanged", Payload: json.RawMessage(`{"item":7}`)})
	detail, err := r.ops.Show(r.t.Context(), ops.EventRef{Seq: other})
	r.must(err)
	_, err = r.ops.Discard(r.t.Context(), ops.Target{Destination: "suppliers", Seq: other, Version: detail.Deliveries[0].Version},
		ops.Action{By: "grace", Reason: "a test order that somebody sent to production"})
	r.must(err)
	_, err = r.ops.StartJob(r.t.Context(), ops.JobRequest{
		Kind: ops.JobReplay, RatePerSecond: 10,
		Filter: ops.Filter{Destination: "suppliers", Statuses: []relay.Status{relay.StatusPublished}, ToSeq: 20},
	}, ops.Action{By: "grace", Reason: "the supplier has lost a morning"})
	r.must(err)
	return poison
}
