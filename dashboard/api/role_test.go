package api_test

import (
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/pillarbox-dev/pillarbox/dashboard/api"
	"github.com/pillarbox-dev/pillarbox/ops"
	"github.com/pillarbox-dev/pillarbox/outbox/schema"
)

// With the operator's rights in the database everything works; with the relay's alone the status does, and the other answers say
// what to do.
func TestRightsInTheDatabase(t *testing.T) {
	b := newBox(t, schema.Postgres, api.Config{})
	b.destination()
	seq := b.poison("evt-1", `{}`, `{}`)
	path := fmt.Sprintf("/destinations/d/deliveries/%d/repair", seq)
	repair := `{"version":"` + b.version("evt-1") + `","reason":"x","payload":{"a":1}}`

	b.as("lone relay", true, false)
	var p shown
	b.call("GET", "/status", "", 200, nil)
	b.call("GET", "/events/evt-1", "", 500, &p)
	if !strings.Contains(p.Hint, "migrate --print-roles") {
		b.Errorf("a look without the rights: %+v", p)
	}
	b.call("POST", path, repair, 500, &p)
	if !strings.Contains(p.Hint, "migrate --print-roles") {
		b.Errorf("a repair without the rights: %+v", p)
	}
	b.as("relay and operator", true, true)
	b.call("POST", path, repair, 200, nil)
	b.call("POST", "/destinations/d/pause", `{"reason":"x"}`, 200, nil)
	b.call("POST", "/jobs", `{"kind":"retry","filter":{"destination":"d"},"reason":"x"}`, 201, nil)
	for _, read := range []string{"/status", "/events", "/log", "/jobs", "/health", "/tasks", "/relays", "/destinations/d/recent"} {
		b.call("GET", read, "", 200, nil)
	}
}

// as lets the API work with a new role that has the rights of a relay, of an operator or of both.
func (b *box) as(role string, relay, operator bool) {
	b.Helper()
	b.exec("create role " + schema.Quote(role) + " login")
	whenSo := map[bool]string{true: role}
	text, err := schema.PrintRoles(`Out "box"`, "", whenSo[relay], whenSo[operator])
	b.must(err)
	b.exec(text)
	var url string
	b.must(b.db.QueryRowContext(b.Context(), `select format('host=%s port=%s dbname=%s sslmode=disable', host(inet_server_addr()),
		inet_server_port(), current_database())`).Scan(&url))
	db, err := sql.Open("pgx", url+" user='"+role+"'")
	b.must(err)
	b.Cleanup(func() {
		b.must(db.Close())
		_, err := b.db.ExecContext(context.Background(), "drop owned by "+schema.Quote(role)+"; drop role "+schema.Quote(role))
		b.must(err)
	})
	o, err := ops.New(db, schema.Postgres, `Out "box"`)
	b.must(err)
	b.handler = asOperator(b.T, api.New(api.Config{Ops: o, Log: slog.New(slog.NewTextHandler(&b.log, nil))}))
}
