package demo

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"time"
)

// view shows what happens while it happens.
type view struct {
	d     *demo
	word  atomic.Value // what is being done
	lines int          // on the terminal
}

// How often the view is brought up to date.
const (
	redrawEvery = 200 * time.Millisecond // on a terminal
	lineEvery   = 2 * time.Second        // elsewhere
)

func newView(d *demo) *view {
	v := &view{d: d}
	v.phase("running")
	return v
}

func (v *view) phase(word string) { v.word.Store(word) }

func (v *view) run(ctx context.Context) {
	every, show := lineEvery, v.line
	if v.d.Terminal {
		every, show = redrawEvery, v.redraw
	}
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		show()
		select {
		case <-ctx.Done():
			show()
			return
		case <-ticker.C:
		}
	}
}

// line is one line for a log.
func (v *view) line() {
	committed, rolledBack := v.d.service.record()
	c := &v.d.receiver.counts
	_, _ = fmt.Fprintf(v.d.Progress, "%5.1fs %s: committed %d, rolled back %d, delivered %d, duplicates %d, relay killed %d\n",
		time.Since(v.d.started).Seconds(), v.word.Load(), len(committed), len(rolledBack), c.handled.Load(), c.duplicates.Load(),
		v.d.relay.Killed())
}

// redraw writes the view over the last one.
func (v *view) redraw() {
	committed, rolledBack := v.d.service.record()
	c := &v.d.receiver.counts
	hole := "answers nothing"
	select {
	case <-v.d.receiver.mended:
		hole = "mended"
	default:
	}
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\x1b[K\n", args...) }
	line("Pillarbox demo   %s, %.1fs (%v and the drain)", v.word.Load(), time.Since(v.d.started).Seconds(), v.d.Duration)
	line("")
	line("  service      %6d committed   %6d rolled back", len(committed), len(rolledBack))
	line("  relay        killed with SIGKILL and restarted: %d", v.d.relay.Killed())
	line("  receiver     %6d delivered   %6d duplicates absorbed", c.handled.Load(), c.duplicates.Load())
	line("    misbehaves %6d × 503   %6d × 500   %6d × 422   %6d too late   %6d handled, answer lost",
		c.unavailable.Load(), c.failed.Load(), c.rejected.Load(), c.tooLate.Load(), c.cut.Load())
	line("  black hole   the endpoint %q %s", blackHoleName, hole)
	text := b.String()
	if v.lines > 0 {
		text = fmt.Sprintf("\x1b[%dA", v.lines) + text
	}
	v.lines = strings.Count(b.String(), "\n")
	_, _ = fmt.Fprint(v.d.Progress, text)
}
