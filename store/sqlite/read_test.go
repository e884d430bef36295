package sqlite_test

import (
	"context"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/pillarbox-dev/pillarbox/relay"
	"github.com/pillarbox-dev/pillarbox/store/sqlite"
)

// Producers in other processes commit and roll back, as a whole and to savepoints, while a relay reads and settles. What is
// read is what was committed with its business row, each once and in order; no gap needs a second look.
func TestProducersInOtherProcesses(t *testing.T) {
	const transactions = 150
	d := newDatabase(t, sqlite.Config{})
	if _, err := d.db.ExecContext(t.Context(), "create table business (id text primary key)"); err != nil {
		t.Fatal(err)
	}
	l := d.lease(t, "dest")
	var producers []*child
	for i := range 3 {
		producers = append(producers, startChild(t, "produce", d.path, "p"+strconv.Itoa(i), strconv.Itoa(transactions)))
	}
	done := make(chan struct{})
	var waiting sync.WaitGroup
	waiting.Go(func() {
		defer close(done)
		for _, p := range producers {
			p.wait(t)
		}
	})

	var read []string
	cursor := relay.NewCursor(0, nil)
	for last := false; ; {
		select {
		case <-done:
			last = true // what is read now is the rest
		default:
		}
		after, gaps := cursor.Ask()
		page := d.read(t, relay.Query{After: after, Gaps: gaps, Limit: 50})
		if len(page.GapSeqs) > 0 {
			t.Errorf("numbers %v turned visible behind a higher one", page.GapSeqs)
		}
		seen := cursor.Saw(page)
		if seen.Filled > 0 {
			t.Errorf("%d numbers came out of gaps", seen.Filled)
		}
		s := relay.Settlement{}
		for _, e := range page.Events {
			read = append(read, e.ID)
			s.Published = append(s.Published, relay.Receipt{Seq: e.Seq})
			cursor.Done(e.Seq)
		}
		mark := cursor.Mark()
		s.Position, s.Gaps = cursor.State()
		settled, err := d.store.Settle(t.Context(), l, s)
		if err != nil {
			t.Fatal(err)
		}
		cursor.Bind(mark, settled.Bound)
		if last && len(page.Seqs) == 0 {
			break
		}
	}
	waiting.Wait()

	committed := texts(t, d.db, "select id from business")
	inOrder(t, read)
	slices.Sort(read)
	slices.Sort(committed)
	if !slices.Equal(read, committed) {
		t.Errorf("read %d events, want the %d that were committed, each once", len(read), len(committed))
	}
	if len(committed) < transactions {
		t.Errorf("only %d events were committed: the test is about too little", len(committed))
	}
	if slices.ContainsFunc(read, func(id string) bool { return strings.HasSuffix(id, "-never") }) {
		t.Error("an event that was rolled back to a savepoint was read")
	}
}

// inOrder checks that each producer's transactions were read in their order.
func inOrder(t *testing.T, ids []string) {
	t.Helper()
	latest := map[string]int{}
	for _, id := range ids {
		parts := strings.Split(id, "-") // producer, transaction, event
		n, err := strconv.Atoi(parts[1])
		if err != nil {
			t.Fatal(err)
		}
		if n < latest[parts[0]] {
			t.Errorf("%s was read after transaction %d of its producer", id, latest[parts[0]])
		}
		latest[parts[0]] = n
	}
}

// What a deleted row or a chosen number leaves open is dead at the first look after a settle.
func TestGapsAreDeadAtOnce(t *testing.T) {
	d := newDatabase(t, sqlite.Config{})
	insert(t, d.db, "k", 10)
	if _, err := d.db.ExecContext(t.Context(), "delete from outbox_event where seq in (3, 4, 8)"); err != nil {
		t.Fatal(err)
	}
	l := d.lease(t, "dest")
	cursor := relay.NewCursor(0, nil)
	look := func() relay.Seen {
		after, gaps := cursor.Ask()
		page := d.read(t, relay.Query{After: after, Gaps: gaps})
		return cursor.Saw(page)
	}
	look()
	if !cursor.Unbound() {
		t.Fatal("no gap was noticed where rows were deleted")
	}
	mark := cursor.Mark()
	settled, err := d.store.Settle(t.Context(), l, relay.Settlement{})
	if err != nil {
		t.Fatal(err)
	}
	cursor.Bind(mark, settled.Bound)
	if seen := look(); seen.Dead != 3 {
		t.Errorf("%d numbers are dead after a settle and a look, want 3", seen.Dead)
	}
	if _, gaps := cursor.State(); len(gaps) != 0 {
		t.Errorf("gaps %v are left, want none", gaps)
	}
}

// The numbers of a log whose rows are all gone go on where they were, and LastSeq knows.
func TestNumbersOutliveTheRows(t *testing.T) {
	d := newDatabase(t, sqlite.Config{})
	insert(t, d.db, "k", 10)
	if _, err := d.db.ExecContext(t.Context(), "delete from outbox_event"); err != nil {
		t.Fatal(err)
	}
	renewal, err := d.store.Renew(t.Context(), d.lease(t, "dest"))
	if err != nil || renewal.LastSeq != 10 {
		t.Errorf("LastSeq is %d, %v, want 10", renewal.LastSeq, err)
	}
	insert(t, d.db, "k", 1)
	if page := d.read(t, relay.Query{After: 10}); !slices.Equal(page.Seqs, []int64{11}) {
		t.Errorf("numbers %v, want 11", page.Seqs)
	}
}

// The file is replaced while it is open: writes would go to a file that nobody sees.
func TestReplacedFile(t *testing.T) {
	d := newDatabase(t, sqlite.Config{})
	l := d.lease(t, "dest")
	other := newDatabase(t, sqlite.Config{})
	if err := os.Rename(other.path, d.path); err != nil {
		t.Fatal(err)
	}
	_, err := d.store.Settle(t.Context(), l, relay.Settlement{Position: 1})
	if err == nil || !strings.Contains(err.Error(), "restart") {
		t.Errorf("Settle after the file was replaced: got %v, want to be told to restart", err)
	}
}

// An operator deleted an event that was not delivered yet: its lane goes on, and the row says what happened.
func TestClaimWithoutEvent(t *testing.T) {
	d := newDatabase(t, sqlite.Config{})
	insert(t, d.db, "k", 4)
	l := d.lease(t, "dest")
	row := relay.Row{Status: relay.StatusPending, Endpoint: "e", Key: "k", OpenLane: true}
	var s relay.Settlement
	for s.Position = range 4 {
		row.Seq, row.Due = s.Position+1, s.Position == 0
		s.Rows = append(s.Rows, row)
	}
	d.settle(t, l, s)
	if _, err := d.db.ExecContext(t.Context(), "delete from outbox_event where seq in (1, 3)"); err != nil {
		t.Fatal(err)
	}
	claim := func(c relay.Claim) (seqs []int64) {
		c.Limit, c.MaxBytes = 10, 1<<20
		claimed, err := d.store.Claim(t.Context(), l, c)
		if err != nil {
			t.Fatal(err)
		}
		for _, open := range claimed.Deliveries {
			seqs = append(seqs, open.Event.Seq)
			if missing := open.Event.Seq%2 == 1; missing != (open.Status == relay.StatusDiscarded) || open.Event.Key != "k" {
				t.Errorf("claimed %d with status %s and key %q", open.Event.Seq, open.Status, open.Event.Key)
			}
		}
		return seqs
	}
	if got := claim(relay.Claim{Due: true}); !slices.Equal(got, []int64{1}) {
		t.Errorf("claimed %v by due, want 1", got)
	}
	if got := claim(relay.Claim{Lane: &relay.LaneID{Endpoint: "e", Key: "k"}}); !slices.Equal(got, []int64{2, 3, 4}) {
		t.Errorf("claimed %v by lane, want 2, 3, 4", got)
	}
	if n := number(t, d.db, `
select count(*) from outbox_delivery
 where seq in (1, 3) and status = 'QUARANTINED' and last_error_code = ?1 and partition_key is null and next_attempt_at is null`,
		relay.CodeEventMissing); n != 2 {
		t.Errorf("%d rows say that their event is missing, want 2", n)
	}
}

// Many goroutines use one store, and the service writes, all at once.
func TestConcurrentUse(t *testing.T) {
	const destinations, events = 4, 200
	d := newDatabase(t, sqlite.Config{Readers: 2})
	var wg sync.WaitGroup
	wg.Go(func() {
		for range events / 10 {
			tx, err := d.db.BeginTx(context.Background(), nil)
			if err != nil {
				t.Error(err)
				return
			}
			insert(t, tx, "k", 10)
			if err := tx.Commit(); err != nil {
				t.Error(err)
			}
			d.store.Wake()
		}
	})
	for i := range destinations {
		wg.Go(func() {
			l := d.lease(t, "dest-"+strconv.Itoa(i))
			woken, err := d.store.Listen(t.Context())
			if err != nil {
				t.Error(err)
				return
			}
			for position := int64(0); position < events; {
				page := d.read(t, relay.Query{After: position, Limit: 7})
				if len(page.Seqs) == 0 {
					<-woken
					continue
				}
				var s relay.Settlement
				for _, e := range page.Events {
					s.Published = append(s.Published, relay.Receipt{Seq: e.Seq})
				}
				s.Position = page.Seqs[len(page.Seqs)-1]
				d.settle(t, l, s)
				position = s.Position
			}
		})
	}
	wg.Wait()
	if n := number(t, d.db, "select count(*) from outbox_delivery"); n != destinations*events {
		t.Errorf("%d deliveries, want %d", n, destinations*events)
	}
}
