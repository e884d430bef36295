package ops

import (
	"fmt"
	"time"

	"github.com/pillarbox-dev/pillarbox/relay"
)

// When something is worth an operator's time. Below these numbers a healthy outbox comes by now and then.
const (
	adviceTransactionAge = 15 * time.Minute
	adviceDeadRows       = 50_000    // and a fifth of the table
	adviceManyDead       = 1_000_000 // whatever the table's size
	adviceLateVacuum     = 1_000_000 // dead rows before autovacuum comes
	adviceCursorBytes    = 64 << 20
	adviceDeliveryBytes  = 256 << 20 // and a KiB per row
	adviceGaps           = relay.MaxGaps / 4
	adviceWALBytes       = 256 << 20
	adviceFreeBytes      = 64 << 20 // and half of the file
)

// advise says what should be done about a PostgreSQL, one sentence each.
func advise(h Health, v vitals) []string {
	advice := []string{}
	add := func(format string, args ...any) { advice = append(advice, fmt.Sprintf(format, args...)) }
	if !v.autovacuum {
		add("autovacuum is off: switch it on in the server's settings, or the tables grow without end.")
	}
	for _, t := range v.tables {
		advice = append(advice, t.advise(v, h.At)...)
	}
	if v.oldest.age > adviceTransactionAge {
		add("%s has been open for %v: vacuum cannot remove what was deleted since, and numbers that others roll back gather "+
			"as gaps: %s.",
			v.oldest.what, v.oldest.age.Round(time.Second), v.oldest.remedy)
	}
	for _, s := range v.slots {
		add("replication slot %q holds back rows of %s transactions for a consumer that is not connected: start the consumer, or drop "+
			"the slot with select pg_drop_replication_slot('…').", s.name, thousands(s.age))
	}
	for _, g := range v.gaps {
		if g.ranges > adviceGaps {
			add("the cursor of %s keeps %s ranges of gaps, and reading stops at %s: some transaction has been open while "+
				"many others were rolled back: find it in pg_stat_activity and end it.",
				g.destination, thousands(g.ranges), thousands(relay.MaxGaps))
		}
	}
	if !v.seesAll {
		add("this role does not see what the sessions of others do, so an old transaction may go unnoticed: grant " +
			"pg_read_all_stats to it.")
	}
	return advice
}

// advise says what should be done about one table.
func (t tableVitals) advise(v vitals, now time.Time) (advice []string) {
	add := func(format string, args ...any) { advice = append(advice, fmt.Sprintf(format, args...)) }
	if t.invalid != "" {
		add("%s has an index that is not valid (%s), because its making was broken off: drop it and apply again "+
			"what 'pillarbox migrate --print' prints.", t.Table, t.invalid)
	}
	if !t.autovacuum {
		add("autovacuum is switched off for %s: run alter table %s reset (autovacuum_enabled).", t.Table, t.Table)
	}
	scale := v.scaleFactor
	if t.scaleFactor.Valid {
		scale = t.scaleFactor.Float64
	}
	share := float64(t.DeadRows) / float64(max(1, t.Rows+t.DeadRows))
	switch {
	case t.DeadRows > adviceManyDead, t.DeadRows > adviceDeadRows && share > 0.2:
		add("%s has %s dead rows beside %s live ones, and was %s: run vacuum %s, and let autovacuum come sooner: alter table %s set "+
			"(autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_cost_delay = 0).",
			t.Table, thousands(t.DeadRows), thousands(t.Rows), t.vacuumed(now), t.Table, t.Table)
	case t.DeadRows > 0 && scale*float64(t.Rows) > adviceLateVacuum:
		add("autovacuum comes to %s only after %s dead rows: alter table %s set (autovacuum_vacuum_scale_factor = 0.01).",
			t.Table, thousands(int64(scale*float64(t.Rows))), t.Table)
	}
	switch {
	case t.Table == "outbox_cursor" && t.TableBytes > adviceCursorBytes,
		t.Table == "outbox_delivery" && t.TableBytes > adviceDeliveryBytes && t.TableBytes/max(1, t.Rows) > 1<<10:
		add("%s takes %d MiB for %s rows: vacuum was held back for long; when what held it back is gone, run vacuum full %s "+
			"while the relays are stopped.", t.Table, t.TableBytes>>20, thousands(t.Rows), t.Table)
	}
	return advice
}

func (t tableVitals) vacuumed(now time.Time) string {
	if t.LastVacuum == nil {
		return "never vacuumed"
	}
	return fmt.Sprintf("last vacuumed %v ago", now.Sub(*t.LastVacuum).Round(time.Second))
}

// adviseSQLite says what should be done about a file.
func adviseSQLite(h Health, p pages) []string {
	advice := []string{}
	add := func(format string, args ...any) { advice = append(advice, fmt.Sprintf(format, args...)) }
	if p.journal != "wal" {
		add("the journal mode is %s: with it every reader waits for every writer: let 'pillarbox migrate' or the service switch "+
			"the file to wal with pragma journal_mode = wal.", p.journal)
	}
	if h.WALBytes > adviceWALBytes {
		add("the WAL file has %d MiB: a reader that stays open keeps it from being emptied: find the process and end it, then run "+
			"pragma wal_checkpoint(truncate).", h.WALBytes>>20)
	}
	if free := p.free * p.size; free > adviceFreeBytes && 2*p.free > p.count {
		add("%d of the file's %d MiB are free pages: new events use them; run vacuum, while nobody writes, to give them back.",
			free>>20, h.DatabaseBytes>>20)
	}
	return advice
}

// thousands puts commas between thousands.
func thousands(n int64) string {
	text := fmt.Sprint(n)
	for i := len(text) - 3; i > 0 && text[i-1] != '-'; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}
