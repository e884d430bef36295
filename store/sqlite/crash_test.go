package sqlite_test

import (
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	"github.com/pillarbox-dev/pillarbox/relay"
	"github.com/pillarbox-dev/pillarbox/store/sqlite"
)

// A process that is killed in the midst of a settle leaves the file whole, and the settle all or nothing.
func TestKillInSettle(t *testing.T) {
	const rows = 10_000 // more than the page cache holds, so that parts of it are in the WAL before the commit
	d := newDatabase(t, sqlite.Config{})
	inTheMidst, done := 0, int64(0)
	for range 6 {
		c := startChild(t, "settle", d.path, strconv.Itoa(rows))
		c.line(t)
		began := time.Now()
		announced := c.line(t)
		time.Sleep(rand.N(time.Since(began))) // about as long as a settle takes
		if last := c.kill(t); last != "" {
			announced = last
		}
		under, err := strconv.ParseInt(announced, 10, 64) // the position of the settle that was under way
		if err != nil {
			t.Fatal(err)
		}

		var check string
		if err := d.db.QueryRowContext(t.Context(), "pragma integrity_check").Scan(&check); err != nil || check != "ok" {
			t.Fatalf("integrity check after a kill: %q, %v, want ok", check, err)
		}
		position := number(t, d.db, "select position from outbox_cursor")
		settled := number(t, d.db, "select count(*) from outbox_delivery")
		if settled != position || position%rows != 0 {
			t.Fatalf("position %d with %d rows, want both the same multiple of %d", position, settled, rows)
		}
		if position <= done {
			t.Fatalf("position %d after a kill, want more than %d: one settle had ended", position, done)
		}
		if done = position; position < under {
			inTheMidst++
		}
	}
	if inTheMidst == 0 {
		t.Error("no kill came in the midst of a settle")
	}

	// The next relay takes over and goes on.
	time.Sleep(100 * time.Millisecond) // the killed one's lease
	l := d.lease(t, "dest")
	d.settle(t, l, relay.Settlement{Position: done + 1, Published: []relay.Receipt{{Seq: done + 1}}})
}
