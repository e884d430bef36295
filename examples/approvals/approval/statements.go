package approval

import (
	"context"
	"database/sql"
	"embed"
	"fmt"

	"github.com/pillarbox-dev/pillarbox/outbox"
	"github.com/pillarbox-dev/pillarbox/outbox/schema"
)

// The statements of each database, one per file.
//
//go:embed postgres/*.sql sqlite/*.sql
var files embed.FS

type statements struct {
	open, vote, agree, use, supersede, revoke, show, record, used string
}

func load(d outbox.Dialect) (s statements, err error) {
	for name, text := range map[string]*string{
		"open": &s.open, "vote": &s.vote, "agree": &s.agree, "use": &s.use, "supersede": &s.supersede, "revoke": &s.revoke,
		"show": &s.show, "record": &s.record, "used": &s.used,
	} {
		if *text, err = read(d, name); err != nil {
			return s, err
		}
	}
	return s, nil
}

func read(d outbox.Dialect, name string) (string, error) {
	text, err := files.ReadFile(d.String() + "/" + name + ".sql")
	if err != nil {
		return "", fmt.Errorf("embedded statement: %w", err)
	}
	return string(text), nil
}

// Migrate makes the outbox's tables and the approvals', in the schema of the pool's search_path.
func Migrate(ctx context.Context, db *sql.DB, d outbox.Dialect, schemaName string) error {
	if _, err := schema.Migrate(ctx, db, d, schemaName); err != nil {
		return err
	}
	text, err := read(d, "schema")
	if err != nil {
		return err
	}
	if _, err := db.ExecContext(ctx, text); err != nil {
		return fmt.Errorf("make the tables of the approvals: %w", err)
	}
	return nil
}
