package main

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/pillarbox-dev/pillarbox/relay/relaytest"
)

// The service is killed at each crash point, with the relay in it, while clients are at work. Each time another one goes on.
func TestCrashPoints(t *testing.T) {
	w := newWorld(t)
	w.work()
	for _, c := range []struct {
		point relaytest.Point
		nth   int // at most
	}{
		{beforeCommit, 60},
		{beforeAnswer, 60},
		{relaytest.BeforeRead, 20},
		{relaytest.AfterRead, 20},
		{relaytest.BeforeDeliver, 10},
		{relaytest.AfterDeliver, 10},
		{relaytest.AfterDeliver, 10},
		{relaytest.BeforeSettle, 10},
		{relaytest.AfterSettle, 10},
	} {
		p := w.doomed(c.point, 1+rand.IntN(c.nth))
		if code := p.wait(time.Minute); code != -1 {
			t.Fatalf("%s: exit status %d, want it killed", c.point, code)
		}
		w.recover()
	}
	last := w.doomed("", 0)
	within(t, time.Minute, "the last one has taken over", func() bool { return strings.Contains(last.logged(), "lease") })
	time.Sleep(500 * time.Millisecond) // it works under load
	w.verdict()
	if w.flow.Stats().Duplicates == 0 {
		t.Error("nothing was sent twice: no service died between delivering and settling")
	}
	if code := last.stop(); code != 0 {
		t.Errorf("the last service ended with %d, want a clean stop", code)
	}
}
