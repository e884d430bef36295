package consumertest

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib"

	"github.com/pillarbox-dev/pillarbox/internal/pgtest"
	"github.com/pillarbox-dev/pillarbox/outbox"
	"github.com/pillarbox-dev/pillarbox/outbox/inbox"
	"github.com/pillarbox-dev/pillarbox/outbox/schema"
)

var deliveries = flag.Int("deliveries", 10_000, "how many deliveries each test makes at least, one in eleven of them a duplicate")

// patience is how long there may be no progress.
const patience = 3 * time.Minute

// kills is how many relays are killed.
const kills = 3

// Handled has no unique key: what is handled twice stands there twice. Transactions that touch an aggregate follow one another, so
// the order of n is the order in which its versions were applied.
const handledTable = `create table handled (n bigserial primary key, event_id text not null, aggregate text not null, version bigint not null)`

// fillSQL writes a log: $2 versions of $1 aggregates, each in its order, at very different speeds.
const fillSQL = `insert into outbox_event
  (topic_name, partition_key, aggregate_type, aggregate_id, aggregate_version, event_type, payload)
select 'accounts', 'a' || a, 'account', 'a' || a, v, 'AccountChanged', json_build_object('aggregate', 'a' || a, 'version', v)
  from generate_series(1, $1::int) a, generate_series(1, $2::int) v
 order by v * (1 + (hashint4(a) & 1023) / 256.0)`

// verdictSQL counts what must not be.
const verdictSQL = `select
  (select count(*) from outbox_event e where not exists (select from handled h where h.event_id = e.event_id)),
  (select count(*) from (select event_id from handled group by event_id having count(*) > 1) twice),
  (select count(*) from (select version, lag(version) over (partition by aggregate order by n) before from handled) h
    where version <> coalesce(before, 0) + 1),
  (select count(*) from handled) - (select count(*) from outbox_inbox where consumer = 'consumer')`

// world is a database with a full log and the consumer's tables.
type world struct {
	t      testing.TB
	url    string
	db     *sql.DB
	box    *inbox.Inbox
	events int
}

func newWorld(t testing.TB) *world {
	t.Helper()
	w := &world{t: t, url: pgtest.Database(t)}
	var err error
	w.db, err = sql.Open("pgx", w.url)
	must(t, err)
	w.db.SetMaxIdleConns(32)
	w.db.SetMaxOpenConns(64)
	t.Cleanup(func() { must(t, w.db.Close()) })
	_, err = schema.Migrate(t.Context(), w.db, outbox.Postgres, "public")
	must(t, err)
	_, err = w.db.ExecContext(t.Context(), handledTable)
	must(t, err)
	w.box, err = inbox.New(outbox.Postgres, inbox.Options{})
	must(t, err)
	aggregates := max(20, *deliveries/200)
	versions := *deliveries*10/11/aggregates + 1
	w.events = aggregates * versions
	_, err = w.db.ExecContext(t.Context(), fillSQL, aggregates, versions)
	must(t, err)
	return w
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

var errSometimes = errors.New("the handler fails now and then")

// apply is the handler of both ways. An event is a delta, so it must be the next version. It fails in the end now and then.
func (w *world) apply(ctx context.Context, tx *sql.Tx, eventID string, body []byte) error {
	var e struct {
		Aggregate string
		Version   int64
	}
	if err := json.Unmarshal(body, &e); err != nil {
		return err
	}
	verdict, err := w.box.Guard(ctx, tx, "consumer", "account", e.Aggregate, e.Version)
	if err != nil {
		return err
	}
	if verdict != inbox.Apply {
		return fmt.Errorf("version %d of %s: %v", e.Version, e.Aggregate, verdict)
	}
	if _, err := tx.ExecContext(ctx, "insert into handled (event_id, aggregate, version) values ($1, $2, $3)",
		eventID, e.Aggregate, e.Version); err != nil {
		return err
	}
	if rand.IntN(500) == 0 {
		return errSometimes
	}
	return nil
}

func (w *world) handled() (n int) {
	w.t.Helper()
	must(w.t, w.db.QueryRowContext(w.t.Context(), "select count(*) from handled").Scan(&n))
	return n
}

// await waits until n are handled, as long as there is progress.
func (w *world) await(n int) {
	w.t.Helper()
	last, since := -1, time.Now()
	for {
		got := w.handled()
		if got >= n {
			return
		}
		if got > last {
			last, since = got, time.Now()
		} else if time.Since(since) > patience {
			w.t.Fatalf("%d of %d events are handled, and for %v no more", got, n, patience)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// carry lets relays carry the whole log, and kills all but the last.
func (w *world) carry(args relayArgs) {
	w.t.Helper()
	args.Database = w.url
	for i := range kills {
		args.Owner = fmt.Sprint("relay ", i)
		p := start(w.t, args)
		w.await((i + 1) * w.events / (kills + 2))
		p.kill()
		_, err := w.db.ExecContext(w.t.Context(), "update outbox_cursor set lease_expires_at = 'epoch'") // nobody holds it
		must(w.t, err)
	}
	args.Owner = "last relay"
	p := start(w.t, args)
	w.await(w.events)
	p.stop()
}

// judge looks at what was handled.
func (w *world) judge(duplicates int) {
	w.t.Helper()
	var missing, twice, back, unknown int
	must(w.t, w.db.QueryRowContext(w.t.Context(), verdictSQL).Scan(&missing, &twice, &back, &unknown))
	if missing+twice+back > 0 || unknown != 0 {
		w.t.Errorf("%d events are not handled, %d more than once, %d versions are not the next, %d are not in the inbox",
			missing, twice, back, unknown)
	}
	if least := w.events / 12; duplicates < least {
		w.t.Errorf("%d duplicates came, want at least %d", duplicates, least)
	}
	w.t.Logf("%d events handled, %d duplicates absorbed, %d relays killed", w.events, duplicates, kills)
}
