package main

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/pillarbox-dev/pillarbox/examples/linkostar/supplier"
	"github.com/pillarbox-dev/pillarbox/outbox"
)

// verdict holds the platform's rows against what the suppliers hold, when all is settled.
func (b *bench) verdict() {
	b.Helper()
	r, inbox, err := reckonWorld(b.Context(), b.records, b.world)
	must(b, err)
	if !r.Kept() || r.Pending > 0 || r.Delivered == 0 || r.Quarantined == 0 {
		b.Errorf("the reckoning:\n%v", r)
	}
	if r.Quarantined != r.Codes["REJECTED_BALANCE"]+r.Codes["HTTP_422"] {
		b.Errorf("quarantined for %v, want what suppliers refuse alone", r.Codes)
	}
	if r.Duplicates == 0 {
		b.Error("nothing came twice: no answer was lost")
	}
	b.Logf("%d events, %d duplicates absorbed", r.Committed, r.Duplicates)
	b.handledOnce(inbox.Received)
	b.agree()
	b.rowsSayWhatSuppliersHold(inbox.Received)
	b.noSecrets()
}

// handledOnce checks that no supplier holds something twice, and that each holds the log's bytes, under its own name.
func (b *bench) handledOnce(received []supplier.Received) {
	b.Helper()
	payloads := map[string]string{}
	for _, row := range b.texts("select event_id, payload from outbox_event") {
		payloads[row[0]] = row[1]
	}
	seen, suppliers := map[string]bool{}, map[string]int{}
	for _, got := range received {
		suppliers[got.Supplier]++
		if seen[got.ID] {
			b.Errorf("%s holds %s %s twice", got.Supplier, got.Kind, got.ID)
		}
		seen[got.ID] = true
		if got.Body != payloads[got.ID] {
			b.Errorf("%s holds\n%s\nwant\n%s", got.Supplier, got.Body, payloads[got.ID])
		}
	}
	if len(suppliers) != 4 {
		b.Errorf("deliveries by supplier: %v, want all four", suppliers)
	}
}

// ownRows are the platform's: kind, uuid, status, supplier, tenant and what the hub is called.
const ownRows = `
select 'hub', hub_uuid, sync_status, supplier, tenant_uuid, hub_identifier from hub_instance
union all
select 'device', device_uuid, sync_status, supplier, tenant_uuid, '' from device_instance
union all
select 'activation', a.activation_uuid, a.sync_status, d.supplier, d.tenant_uuid, ''
  from device_activation_event a join device_instance d on d.device_uuid = a.device_uuid`

// rowsSayWhatSuppliersHold: SYNCED or SENT is there, and what is refused is not; and nothing else is left.
func (b *bench) rowsSayWhatSuppliersHold(received []supplier.Received) {
	b.Helper()
	holds := map[string]bool{}
	for _, got := range received {
		holds[got.Supplier+" "+got.Kind+" "+got.ID] = true
	}
	counts := map[string]int{}
	for _, row := range b.texts(ownRows) {
		kind, uuid, status, name, tenant, identifier := row[0], row[1], row[2], row[3], row[4], row[5]
		want := "SYNCED"
		switch {
		case name == "initech" && kind == "activation" && tenant == brokeTenant:
			want = "REJECTED_BALANCE"
		case name == "initech" && kind == "hub" && strings.HasPrefix(identifier, "legacy-"):
			want = "DEAD"
		case kind == "activation":
			want = "SENT"
		}
		counts[status]++
		if status != want {
			b.Errorf("%s %s of %s is %s, want %s", kind, uuid, name, status, want)
		}
		if is := status == "SYNCED" || status == "SENT"; holds[name+" "+kind+" "+uuid] != is {
			b.Errorf("%s %s is %s, but %s holds it: %v", kind, uuid, status, name, !is)
		}
	}
	if counts["SYNCED"] == 0 || counts["SENT"] == 0 || counts["REJECTED_BALANCE"] == 0 || counts["DEAD"] == 0 {
		b.Errorf("rows by status: %v, want some of each", counts)
	}
}

// noSecrets looks for them in all that was written: logs, configuration, databases.
func (b *bench) noSecrets() {
	b.Helper()
	files, err := filepath.Glob(filepath.Join(b.world.dir, "*"))
	must(b, err)
	written := map[string][]byte{}
	var secrets []string
	for _, file := range files {
		text, err := os.ReadFile(file)
		must(b, err)
		switch filepath.Ext(file) {
		case ".secret", ".token":
			secrets = append(secrets, strings.TrimSpace(string(text)))
		default:
			written[filepath.Base(file)] = text
		}
	}
	for _, p := range b.processes {
		written[strings.Join(p.cmd.Args[1:], " ")] = p.log.Bytes()
	}
	if b.db.dialect == outbox.SQLite {
		for _, file := range []string{b.database, b.database + "-wal"} {
			written[filepath.Base(file)], _ = os.ReadFile(file) // the second need not be there
		}
	} else {
		for _, table := range []string{"outbox_event", "outbox_delivery", "outbox_cursor", "hub_instance"} {
			for _, row := range b.texts("select t::text from " + table + " t") {
				written[table] = append(written[table], row[0]...)
			}
		}
	}
	if len(secrets) != 5 || len(written) < 8 {
		b.Fatalf("%d secrets, %d places: the test looks at too little", len(secrets), len(written))
	}
	for where, text := range written {
		if slices.ContainsFunc(secrets, func(secret string) bool { return bytes.Contains(text, []byte(secret)) }) {
			b.Errorf("%s shows a secret", where)
		}
	}
}

// texts returns the rows of a query.
func (b *bench) texts(query string) (all [][]string) {
	b.Helper()
	rows, err := b.db.QueryContext(b.Context(), query)
	must(b, err)
	defer rows.Close()
	columns, err := rows.Columns()
	must(b, err)
	for rows.Next() {
		row := make([]string, len(columns))
		into := make([]any, len(columns))
		for i := range row {
			into[i] = &row[i]
		}
		must(b, rows.Scan(into...))
		all = append(all, row)
	}
	must(b, rows.Err())
	return all
}
