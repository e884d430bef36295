package ops

import (
	"database/sql"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"testing"
	"time"

	"github.com/pillarbox-dev/pillarbox/outbox/schema"
	"github.com/pillarbox-dev/pillarbox/store/sqlite"
)

// Everything that was created in a span lies in the stretch, and with a log without jitter little else, whatever holes it has.
func TestCreatedBetween(t *testing.T) {
	db, err := sqlite.OpenDB(t.Context(), sqlite.Config{Path: filepath.Join(t.TempDir(), "box.db")})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := schema.Migrate(t.Context(), db, schema.SQLite, ""); err != nil {
		t.Fatal(err)
	}
	o, err := New(db, schema.SQLite, "")
	if err != nil {
		t.Fatal(err)
	}
	if first, last, err := o.createdBetween(t.Context(), db, time.Now(), time.Now()); err != nil || first != 1 || last != 0 {
		t.Errorf("an empty log: got %d to %d, %v; want 1 to 0", first, last, err)
	}
	random := rand.New(rand.NewPCG(1, 2))
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	created := map[int64]time.Time{}
	for seq := int64(1); seq <= 3000; seq++ {
		if seq%7 == 0 || seq > 1000 && seq < 1500 {
			continue // rolled back, or deleted
		}
		created[seq] = start.Add(time.Duration(seq)*10*time.Second + time.Duration(random.IntN(30))*time.Second)
	}
	insert(t, db, created)
	for range 50 {
		since := start.Add(time.Duration(random.IntN(35_000)) * time.Second)
		until := since.Add(time.Duration(random.IntN(10_000)) * time.Second)
		first, last, err := o.createdBetween(t.Context(), db, since, until)
		if err != nil {
			t.Fatal(err)
		}
		strangers := 0
		for seq, at := range created {
			within := !at.Before(since) && at.Before(until)
			if within && (seq < first || seq > last) {
				t.Errorf("%v to %v: %d of %v is outside %d to %d", since, until, seq, at, first, last)
			}
			if !within && seq >= first && seq <= last {
				strangers++
			}
		}
		if strangers > 25 {
			t.Errorf("%v to %v: %d of %d to %d are strangers", since, until, strangers, first, last)
		}
	}
}

func insert(t *testing.T, db *sql.DB, created map[int64]time.Time) {
	tx, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback()
	for seq, at := range created {
		if _, err := tx.ExecContext(t.Context(), "insert into outbox_event (seq, topic_name, event_type, created_at) values (?1, 't', 'T', ?2)",
			seq, at.UnixMicro()); err != nil {
			t.Fatal(fmt.Errorf("event %d: %w", seq, err))
		}
	}
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
}
