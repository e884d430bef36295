package ops

import (
	"database/sql"
	"strings"
	"testing"
	"time"
)

func TestAdvise(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	hourAgo := at.Add(-time.Hour)
	well := func() vitals { return vitals{autovacuum: true, scaleFactor: 0.2, seesAll: true} }
	table := func(change func(*tableVitals)) vitals {
		v := well()
		one := tableVitals{TableHealth: TableHealth{Table: "outbox_delivery", Rows: 100_000}, autovacuum: true}
		change(&one)
		v.tables = []tableVitals{one}
		return v
	}
	other := func(change func(*vitals)) vitals {
		v := well()
		change(&v)
		return v
	}
	for name, tt := range map[string]struct {
		vitals vitals
		want   string // in the one sentence; "": there is none
	}{
		"all is well":           {table(func(*tableVitals) {}), ""},
		"some dead rows":        {table(func(t *tableVitals) { t.DeadRows = 20_000 }), ""},
		"a fifth is dead":       {table(func(t *tableVitals) { t.DeadRows = 60_000 }), "60,000 dead rows beside 100,000 live ones, and was never vacuumed"},
		"a fifth, of few":       {table(func(t *tableVitals) { t.Rows, t.DeadRows = 10, 49_000 }), ""},
		"many dead, vacuumed":   {table(func(t *tableVitals) { t.DeadRows, t.Rows, t.LastVacuum = 1_000_001, 50_000_000, &hourAgo }), "last vacuumed 1h0m0s ago"},
		"autovacuum comes late": {table(func(t *tableVitals) { t.DeadRows, t.Rows = 1, 50_000_000 }), "only after 10,000,000 dead rows"},
		"it comes soon": {table(func(t *tableVitals) {
			t.DeadRows, t.Rows, t.scaleFactor = 1, 50_000_000, sql.NullFloat64{Float64: 0.01, Valid: true}
		}), ""},
		"nothing is ever dead":   {table(func(t *tableVitals) { t.Rows = 50_000_000 }), ""},
		"autovacuum off, table":  {table(func(t *tableVitals) { t.autovacuum = false }), "switched off for outbox_delivery"},
		"autovacuum off, server": {other(func(v *vitals) { v.autovacuum = false }), "autovacuum is off"},
		"an invalid index":       {table(func(t *tableVitals) { t.invalid = "outbox_delivery_due" }), "not valid (outbox_delivery_due)"},
		"a bloated ledger":       {table(func(t *tableVitals) { t.TableBytes = 512 << 20 }), "takes 512 MiB for 100,000 rows"},
		"a big ledger":           {table(func(t *tableVitals) { t.TableBytes, t.Rows = 512<<20, 5_000_000 }), ""},
		"a bloated cursor":       {table(func(t *tableVitals) { t.Table, t.TableBytes, t.Rows = "outbox_cursor", 65<<20, 3 }), "outbox_cursor takes 65 MiB for 3 rows"},
		"an old transaction": {other(func(v *vitals) {
			v.oldest = blocker{what: "a transaction of psql", age: 2 * time.Hour, remedy: "end it"}
		}), "a transaction of psql has been open for 2h0m0s"},
		"a young one":     {other(func(v *vitals) { v.oldest = blocker{what: "x", age: time.Minute} }), ""},
		"a slot":          {other(func(v *vitals) { v.slots = []slot{{"old", 12345}} }), `"old" holds back rows of 12,345 transactions`},
		"many gaps":       {other(func(v *vitals) { v.gaps = []cursorGaps{{"suppliers", 0, 5_001}} }), "cursor of suppliers keeps 5,001 ranges of gaps"},
		"few gaps":        {other(func(v *vitals) { v.gaps = []cursorGaps{{"suppliers", 0, 5_000}} }), ""},
		"a blind role":    {other(func(v *vitals) { v.seesAll = false }), "grant pg_read_all_stats"},
		"an empty outbox": {well(), ""},
	} {
		got := advise(Health{At: at}, tt.vitals)
		if tt.want == "" && len(got) > 0 || tt.want != "" && (len(got) != 1 || !strings.Contains(got[0], tt.want)) {
			t.Errorf("%s: advice = %q, want one with %q", name, got, tt.want)
		}
	}
}

func TestAdviseSQLite(t *testing.T) {
	for name, tt := range map[string]struct {
		health Health
		pages  pages
		want   string
	}{
		"all is well":      {Health{WALBytes: 4 << 20}, pages{4096, 100_000, 10, "wal"}, ""},
		"another journal":  {Health{}, pages{4096, 10, 0, "delete"}, "journal mode is delete"},
		"a big WAL":        {Health{WALBytes: 300 << 20}, pages{4096, 10, 0, "wal"}, "the WAL file has 300 MiB"},
		"mostly free":      {Health{DatabaseBytes: 400 << 20}, pages{4096, 102_400, 60_000, "wal"}, "234 of the file's 400 MiB are free pages"},
		"free, but little": {Health{}, pages{4096, 1000, 900, "wal"}, ""},
	} {
		got := adviseSQLite(tt.health, tt.pages)
		if tt.want == "" && len(got) > 0 || tt.want != "" && (len(got) != 1 || !strings.Contains(got[0], tt.want)) {
			t.Errorf("%s: advice = %q, want one with %q", name, got, tt.want)
		}
	}
}
