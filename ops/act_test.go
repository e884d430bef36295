package ops_test

import (
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/pillarbox-dev/pillarbox/ops"
	"github.com/pillarbox-dev/pillarbox/outbox/schema"
	"github.com/pillarbox-dev/pillarbox/relay"
)

// broken adds an event of a key and its delivery to d, which an operator may act on, and returns what the operator sees.
func (b *box) broken(key, status string, inLane bool) ops.Delivery {
	b.Helper()
	b.exec(fmt.Sprintf(`insert into outbox_event (event_id, topic_name, event_type, partition_key, payload, headers)
		select 'id-' || (1 + count(*)), 'orders', 'T', '%s', '{"amount": 1e400,  "note":"<b>"}', '{"h":"1"}' from outbox_event`, key))
	lane := "null"
	if inLane {
		lane = "'" + key + "'"
	}
	b.exec(fmt.Sprintf(`insert into outbox_delivery (destination, seq, status, attempt_count, partition_key, last_error_code,
			last_error_message, next_attempt_at, last_attempt_at, endpoint)
		select 'd', max(seq), '%s', 3, %s, 'HTTP_422', 'amount is missing', %s, %s, null from outbox_event`, status, lane,
		b.sql("clock_timestamp() + interval '1 hour'", "cast((unixepoch('subsec') + 3600) * 1000000 as integer)"),
		b.sql("clock_timestamp()", "cast(unixepoch('subsec') * 1000000 as integer)")))
	return b.newest()
}

// newest is the delivery to d of the newest event.
func (b *box) newest() ops.Delivery {
	b.Helper()
	page, err := b.List(b.Context(), ops.Filter{Destination: "d"}, ops.Page{Limit: 1})
	b.must(err)
	if len(page.Deliveries) != 1 {
		b.Fatalf("listed %+v, want one delivery", page)
	}
	return page.Deliveries[0]
}

func target(d ops.Delivery) ops.Target {
	return ops.Target{Destination: d.Destination, Seq: d.Seq, Version: d.Version}
}

// row is what the relay goes by.
func (b *box) row(seq int64) string {
	b.Helper()
	var status, key, endpoint, code, due string
	var attempts int
	now := b.sql("clock_timestamp()", "cast(unixepoch('subsec') * 1000000 as integer)")
	b.must(b.db.QueryRowContext(b.Context(), `select status, attempt_count, coalesce(partition_key, '-'), coalesce(endpoint, '-'),
			coalesce(last_error_code, '-'),
			case when next_attempt_at is null then 'waits' when next_attempt_at <= `+now+` then 'due' else 'later' end
		from outbox_delivery where destination = 'd' and locked_by is null and seq = `+fmt.Sprint(seq)).
		Scan(&status, &attempts, &key, &endpoint, &code, &due))
	return fmt.Sprintf("%s/%d key %s endpoint %q %s %s", status, attempts, key, endpoint, code, due)
}

func TestRetry(t *testing.T) {
	onBoth(t, func(b *box) {
		b.cursor("d", 100)
		for _, tt := range []struct {
			key, status string
			inLane      bool
			want        string
		}{
			{"k", "QUARANTINED", false, `PENDING/0 key k endpoint "" - due`},
			{"k", "QUARANTINED", true, `PENDING/0 key k endpoint "" - due`},
			{"k", "FAILED", true, `PENDING/0 key k endpoint "" - due`},
			{"", "FAILED", false, `PENDING/0 key - endpoint "" - due`},
		} {
			seen := b.broken(tt.key, tt.status, tt.inLane)
			got, err := b.Retry(b.Context(), target(seen), ops.Action{By: "ann", Reason: "they have mended it"})
			b.must(err)
			if row := b.row(seen.Seq); row != tt.want {
				b.Errorf("%+v: row %s, want %s", tt, row, tt.want)
			}
			if got.Status != relay.StatusPending || got.Attempts != 0 || got.ErrorCode != "" || got.EventID != seen.EventID {
				b.Errorf("%+v: returned %+v", tt, got)
			}
			if now := b.newest(); now.Version != got.Version || got.Version == seen.Version {
				b.Errorf("version %q, then %q, listed as %q", seen.Version, got.Version, now.Version)
			}
		}
		page, err := b.Log(b.Context(), ops.LogFilter{Seq: 1}, ops.Page{})
		b.must(err)
		e := page.Entries[0]
		got := fmt.Sprintf("%s %s %s %d %s %s %s %s", e.Operator, e.Action, e.Destination, e.Seq, e.EventID, e.Reason, e.Before, e.After)
		want := `ann retry d 1 id-1 they have mended it ` +
			`{"status":"QUARANTINED","attempt_count":3,"last_error_code":"HTTP_422","last_error_message":"amount is missing"} ` +
			`{"status":"PENDING","attempt_count":0}`
		if got != want || len(page.Entries) != 1 {
			b.Errorf("recorded %s\nwant %s", got, want)
		}
	})
}

// What stands in its lane becomes due, so that the relay's claim lets the lane go on.
func TestDiscard(t *testing.T) {
	onBoth(t, func(b *box) {
		b.cursor("d", 100)
		for _, tt := range []struct {
			key, status string
			inLane      bool
			want        string
		}{
			{"k", "QUARANTINED", false, `DISCARDED/3 key - endpoint "-" HTTP_422 waits`},
			{"k", "QUARANTINED", true, `DISCARDED/3 key k endpoint "-" HTTP_422 due`},
			{"k", "FAILED", true, `DISCARDED/3 key k endpoint "-" HTTP_422 due`},
			{"k", "PENDING", true, `DISCARDED/3 key k endpoint "-" HTTP_422 due`},
			{"", "PENDING", false, `DISCARDED/3 key - endpoint "-" HTTP_422 waits`},
		} {
			seen := b.broken(tt.key, tt.status, tt.inLane)
			got, err := b.Discard(b.Context(), target(seen), ops.Action{By: "ann"})
			b.must(err)
			if row := b.row(seen.Seq); row != tt.want || got.Status != relay.StatusDiscarded {
				b.Errorf("%+v: %s, row %s, want %s", tt, got.Status, row, tt.want)
			}
		}
	})
}

func TestActionsRefuse(t *testing.T) {
	onBoth(t, func(b *box) {
		b.cursor("d", 100)
		type do func(ops.Target, ops.Action) (ops.Delivery, error)
		retry := func(t ops.Target, a ops.Action) (ops.Delivery, error) { return b.Retry(b.Context(), t, a) }
		discard := func(t ops.Target, a ops.Action) (ops.Delivery, error) { return b.Discard(b.Context(), t, a) }
		repair := func(t ops.Target, a ops.Action) (ops.Delivery, error) {
			return b.Repair(b.Context(), t, ops.Repair{Payload: []byte(`{}`)}, a)
		}
		for _, tt := range []struct {
			name   string
			do     do
			status string
			change func(*ops.Target)
			by     string
			want   string
		}{
			{"nobody", retry, "FAILED", nil, "", "nobody is named who does it: say who you are"},
			{"blind", discard, "FAILED", func(t *ops.Target) { t.Version = "" }, "ann", "look at the delivery first"},
			{"nothing", discard, "FAILED", func(t *ops.Target) { t.Seq = 0 }, "ann", "no delivery is named"},
			{"an unknown event", retry, "FAILED", func(t *ops.Target) { t.Seq = 999 }, "ann", "not found"},
			{"an unknown destination", retry, "FAILED", func(t *ops.Target) { t.Destination = "e" }, "ann", "not found"},
			{"what is under way", retry, "PUBLISHING", nil, "ann", "under way right now: wait"},
			{"what is under way", discard, "PUBLISHING", nil, "ann", "under way right now: wait"},
			{"what is under way", repair, "PUBLISHING", nil, "ann", "under way right now: wait"},
			{"what is published", retry, "PUBLISHED", nil, "ann", "it is PUBLISHED: to send it once more, replay it"},
			{"what is published", discard, "PUBLISHED", nil, "ann", "replay it"},
			{"what is published", repair, "PUBLISHED", nil, "ann", "replay it"},
			{"what is discarded", retry, "DISCARDED", nil, "ann", "it is DISCARDED: to deliver it all the same, replay it"},
			{"what is discarded", discard, "DISCARDED", nil, "ann", "it is discarded already"},
			{"what waits", retry, "PENDING", nil, "ann", "it is PENDING: it is delivered as soon as"},
			{"what waits", repair, "PENDING", nil, "ann", "it is PENDING: it is delivered as soon as"},
		} {
			seen := b.broken("k", tt.status, true)
			to := target(seen)
			if tt.change != nil {
				tt.change(&to)
			}
			_, err := tt.do(to, ops.Action{By: tt.by})
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				b.Errorf("%s, %s: %v, want %s", tt.name, tt.status, err, tt.want)
			}
			var refused *ops.RefusedError
			if !errors.As(err, &refused) && !errors.Is(err, ops.ErrNotFound) {
				b.Errorf("%s: %v is neither a RefusedError nor ErrNotFound", tt.name, err)
			}
			if now := b.newest(); now.Version != seen.Version {
				b.Errorf("%s: it has become %+v", tt.name, now)
			}
		}
		if got := b.actions(); len(got) != 0 {
			b.Errorf("recorded %q, want nothing", got)
		}
	})
}

// An event that somebody deleted can be discarded, and nothing else.
func TestActOnWhatHasNoEvent(t *testing.T) {
	onBoth(t, func(b *box) {
		b.cursor("d", 100)
		seen := b.broken("k", "QUARANTINED", true)
		b.exec("delete from outbox_event")
		_, err := b.Retry(b.Context(), target(seen), ops.Action{By: "ann"})
		if err == nil || !strings.Contains(err.Error(), "Discard it") {
			b.Errorf("retry: %v, want the hint to discard", err)
		}
		if got, err := b.Discard(b.Context(), target(seen), ops.Action{By: "ann"}); err != nil || got.Status != relay.StatusDiscarded {
			b.Errorf("discard: %+v, %v", got, err)
		}
	})
}

// What an operator has not seen is not overwritten: neither another operator's doing nor the relay's.
func TestActionsConflict(t *testing.T) {
	onBoth(t, func(b *box) {
		b.cursor("d", 100)
		b.cursor("e", 100)
		for name, change := range map[string]func(seen ops.Delivery){
			"another operator": func(seen ops.Delivery) {
				_, err := b.Retry(b.Context(), target(seen), ops.Action{By: "bob"})
				b.must(err)
			},
			"another attempt": func(ops.Delivery) {
				b.exec(`update outbox_delivery set attempt_count = 4`)
			},
			"an attempt that was not counted": func(ops.Delivery) {
				b.exec(`update outbox_delivery set last_attempt_at = ` + b.sql("last_attempt_at + interval '1 microsecond'", "last_attempt_at + 1"))
			},
			"a repair of the event at another destination": func(seen ops.Delivery) {
				b.exec(`insert into outbox_delivery (destination, seq, status) values ('e', ` + fmt.Sprint(seen.Seq) + `, 'QUARANTINED')`)
				detail, err := b.Show(b.Context(), ops.EventRef{Seq: seen.Seq})
				b.must(err)
				_, err = b.Repair(b.Context(), target(detail.Deliveries[1]), ops.Repair{Payload: []byte(`{}`)}, ops.Action{By: "bob"})
				b.must(err)
			},
		} {
			seen := b.broken("k", "QUARANTINED", false)
			change(seen)
			got, err := b.Discard(b.Context(), target(seen), ops.Action{By: "ann"})
			var conflict *ops.ConflictError
			if !errors.As(err, &conflict) {
				b.Errorf("%s: %+v, %v, want a ConflictError", name, got, err)
				continue
			}
			if now := b.newest(); conflict.Now.Version != now.Version || now.Status == relay.StatusDiscarded {
				b.Errorf("%s: the conflict is %+v, and it is %+v", name, conflict.Now, now)
			}
		}
	})
}

// TestTwoOperators lets two operators do different things to one delivery at once: one wins, the other is told what it has become.
func TestTwoOperators(t *testing.T) {
	onBoth(t, func(b *box) {
		const rounds = 60
		b.cursor("d", 1000)
		b.db.SetMaxIdleConns(4)
		wins := map[string]int{}
		for range rounds {
			seen := b.broken("k", "QUARANTINED", false)
			errs := map[string]error{}
			var mu sync.Mutex
			var both sync.WaitGroup
			start := make(chan struct{})
			for name, do := range map[string]func() error{
				"retry": func() error {
					_, err := b.Retry(b.Context(), target(seen), ops.Action{By: "ann"})
					return err
				},
				"discard": func() error {
					_, err := b.Discard(b.Context(), target(seen), ops.Action{By: "bob"})
					return err
				},
				"repair": func() error {
					_, err := b.Repair(b.Context(), target(seen), ops.Repair{Headers: map[string]string{}}, ops.Action{By: "cem"})
					return err
				},
			} {
				both.Go(func() {
					<-start
					err := do()
					mu.Lock()
					defer mu.Unlock()
					errs[name] = err
				})
			}
			close(start)
			both.Wait()
			won := 0
			for name, err := range errs {
				var conflict *ops.ConflictError
				switch {
				case err == nil:
					won++
					wins[name]++
				case !errors.As(err, &conflict) || conflict.Now.Status == relay.StatusQuarantined:
					b.Fatalf("%s: %v, want to win or a conflict with what it has become", name, err)
				}
			}
			if won != 1 {
				b.Fatalf("%d operators won, want one: %v", won, errs)
			}
		}
		if got := len(b.actions()); got != rounds {
			b.Errorf("%d actions are recorded, want %d", got, rounds)
		}
		b.Logf("wins: %v", wins)
	})
}

// A relay that takes the delivery first is not overtaken: the operator waits for its transaction, and is told.
func TestTheRelayWasFaster(t *testing.T) {
	b := newBox(t, schema.Postgres)
	b.db.SetMaxIdleConns(4)
	b.cursor("d", 100)
	seen := b.broken("k", "FAILED", true)
	tx, err := b.db.BeginTx(t.Context(), &sql.TxOptions{})
	b.must(err)
	defer tx.Rollback()
	_, err = tx.ExecContext(t.Context(), `update outbox_delivery set status = 'PUBLISHING', locked_by = 'r1' where seq = $1`, seen.Seq)
	b.must(err)
	done := make(chan error)
	go func() {
		_, err := b.Discard(t.Context(), target(seen), ops.Action{By: "ann"})
		done <- err
	}()
	waiting := 0
	for waiting == 0 {
		b.must(b.db.QueryRowContext(t.Context(), `select count(*) from pg_stat_activity
			where datname = current_database() and wait_event_type = 'Lock'`).Scan(&waiting))
	}
	b.must(tx.Commit())
	var conflict *ops.ConflictError
	if err := <-done; !errors.As(err, &conflict) || conflict.Now.Status != relay.StatusPublishing {
		t.Errorf("discard: %v, want a conflict with PUBLISHING", err)
	}
}

// TestTheOperatorsRole does everything with the grants that `pillarbox migrate --print-roles` prints for an operator, and no others.
func TestTheOperatorsRole(t *testing.T) {
	b := newBox(t, schema.Postgres)
	b.cursor("d", 100)
	role := "operator_" + b.database()
	grants, err := schema.PrintRoles(b.schema, "", "", role)
	b.must(err)
	b.exec("create role " + schema.Quote(role) + " login")
	b.exec(grants)
	address, err := url.Parse(b.address)
	b.must(err)
	address.User = url.User(role)
	db, err := sql.Open("pgx", address.String())
	b.must(err)
	defer db.Close()
	o, err := ops.New(db, schema.Postgres, b.schema)
	b.must(err)
	ann := ops.Action{By: "ann"}
	_, err = o.Retry(t.Context(), target(b.broken("k", "QUARANTINED", false)), ann)
	b.must(err)
	_, err = o.Discard(t.Context(), target(b.broken("k", "FAILED", true)), ann)
	b.must(err)
	_, err = o.Repair(t.Context(), target(b.broken("k", "QUARANTINED", true)), ops.Repair{Payload: []byte(`{}`)}, ann)
	b.must(err)
	list, err := o.List(t.Context(), ops.Filter{}, ops.Page{})
	b.must(err)
	log, err := o.Log(t.Context(), ops.LogFilter{Operator: "ann"}, ops.Page{})
	b.must(err)
	if len(list.Deliveries) != 3 || len(log.Entries) != 3 {
		t.Errorf("%d deliveries and %d lines of the log, want 3 and 3", len(list.Deliveries), len(log.Entries))
	}
	_, err = o.Show(t.Context(), ops.EventRef{Seq: 1})
	b.must(err)
	b.exec("insert into outbox_event_archive select * from outbox_event")
	b.exec("delete from outbox_event")
	_, err = o.Show(t.Context(), ops.EventRef{Seq: 1})
	b.must(err)
}
