package outbox

import (
	"bytes"
	"crypto/rand"
	"errors"
	"regexp"
	"sync"
	"testing"
	"testing/iotest"
	"time"
)

// TestIDVector is the example of RFC 9562, A.6: its fraction, 0xCC3, is 3267/4096 of a millisecond.
func TestIDVector(t *testing.T) {
	at := time.UnixMilli(0x017F22E279B0).Add(time.Duration(0xCC3*1_000_000/4096+1) * time.Nanosecond)
	ids := idSource{
		now:    func() time.Time { return at },
		random: bytes.NewReader([]byte{0x18, 0xC4, 0xDC, 0x0C, 0x0C, 0x07, 0x39, 0x8F}),
	}
	got, err := ids.next()
	if want := "017f22e2-79b0-7cc3-98c4-dc0c0c07398f"; got != want || err != nil {
		t.Errorf("got %s, %v; want %s", got, err, want)
	}
}

func TestIDsGrowWhenTheClockDoesNot(t *testing.T) {
	start := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for _, c := range []struct {
		name string
		step time.Duration
	}{{"standing", 0}, {"back", -time.Hour}, {"forth", time.Microsecond}} {
		t.Run(c.name, func(t *testing.T) {
			now := start
			ids := idSource{random: rand.Reader, now: func() time.Time { now = now.Add(c.step); return now }}
			before := ""
			for range 10_000 {
				id, err := ids.next()
				if err != nil || id <= before {
					t.Fatalf("after %q came %q, %v", before, id, err)
				}
				before = id
			}
		})
	}
}

func TestIDsOfManyGoroutinesDiffer(t *testing.T) {
	ids := idSource{now: time.Now, random: rand.Reader}
	shape := regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`)
	var mu sync.Mutex
	seen := map[string]bool{}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			before := ""
			for range 2000 {
				id, err := ids.next()
				if err != nil || !shape.MatchString(id) || id <= before {
					t.Errorf("after %q came %q, %v", before, id, err)
					return
				}
				before = id
				mu.Lock()
				seen[id[:18]] = true // the part that grows is alone enough
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	if len(seen) != 8*2000 {
		t.Errorf("%d different ids, want %d", len(seen), 8*2000)
	}
}

func TestIDWithoutEntropyIsAnError(t *testing.T) {
	broken := errors.New("no entropy")
	ids := idSource{now: time.Now, random: iotest.ErrReader(broken)}
	if id, err := ids.next(); !errors.Is(err, broken) {
		t.Errorf("got %q, %v; want the reader's error", id, err)
	}
}
