package cli

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/pillarbox-dev/pillarbox/internal/wire"
	"github.com/pillarbox-dev/pillarbox/outbox/schema"
)

func newMigrate(a *app) *cobra.Command {
	var m migrate
	cmd := &cobra.Command{
		Use:   "migrate",
		Short: "Make or update the tables of the outbox",
		Long: `migrate applies what the database lacks, in one transaction. It never drops anything, may be run again, and may be
run by many processes at once.

With --print… it prints SQL instead, for another migration tool, and connects to nothing. Then --dialect and --schema
stand in for a configuration.`,
		Example: `  pillarbox migrate
  pillarbox migrate --print > outbox.sql
  pillarbox migrate --print --dialect postgres --schema integration
  pillarbox migrate --print-roles shop_app,shop_relay,shop_operator`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if m.print || m.trigger || m.roles != "" {
				return m.printSQL(a)
			}
			if m.dialect != "" || m.schema != "" {
				return usageError{fmt.Errorf("--dialect and --schema go with --print: the configuration says what is migrated")}
			}
			return m.apply(cmd, a)
		},
	}
	cmd.Flags().BoolVar(&m.print, "print", false, "print the SQL of all tables")
	cmd.Flags().StringVar(&m.roles, "print-roles", "",
		"print the grants for `APP,RELAY,OPERATOR`, roles that exist; an empty name leaves one out")
	cmd.Flags().BoolVar(&m.trigger, "print-wake-trigger", false, "print the trigger that wakes a sleeping relay for plain SQL inserts")
	cmd.Flags().StringVar(&m.dialect, "dialect", "", "postgres or sqlite, instead of what the configuration says")
	cmd.Flags().StringVar(&m.schema, "schema", "", "the schema, instead of what the configuration says")
	return cmd
}

type migrate struct {
	print, trigger bool
	roles          string
	dialect        string
	schema         string
}

func (m *migrate) apply(cmd *cobra.Command, a *app) error {
	c, err := a.load()
	if err != nil {
		return err
	}
	db, err := wire.OpenDB(cmd.Context(), c.Database, true)
	if err != nil {
		return err
	}
	defer db.Close()
	applied, err := schema.Migrate(cmd.Context(), db, c.Database.Dialect(), c.Database.SchemaName())
	if err != nil {
		return err
	}
	for _, step := range applied {
		a.printf("applied %v\n", step)
	}
	if len(applied) == 0 {
		a.printf("nothing to do: the tables are up to date\n")
	}
	return nil
}

// printSQL prints what was asked for, in the order in which it can be run.
func (m *migrate) printSQL(a *app) error {
	dialect, name, err := m.target(a)
	if err != nil {
		return err
	}
	if dialect != schema.Postgres && (m.trigger || m.roles != "") {
		return usageError{fmt.Errorf("roles and the wake trigger are PostgreSQL's: SQLite has none")}
	}
	var texts []string
	add := func(text string, err error) error { texts = append(texts, text); return err }
	if m.print {
		if err := add(schema.Print(dialect, name)); err != nil {
			return err
		}
	}
	if m.roles != "" {
		roles := strings.Split(m.roles, ",")
		if len(roles) != 3 {
			return usageError{errors.New("--print-roles wants three names, as in app,relay,operator: an empty one leaves that role out")}
		}
		for i, role := range roles {
			roles[i] = strings.TrimSpace(role)
		}
		if err := add(schema.PrintRoles(name, roles[0], roles[1], roles[2])); err != nil {
			return err
		}
	}
	if m.trigger {
		if err := add(schema.PrintWakeTrigger(name)); err != nil {
			return err
		}
	}
	a.printf("%s", strings.Join(texts, "\n"))
	return nil
}

// target is the dialect and the schema: of the flags, else of the configuration.
func (m *migrate) target(a *app) (schema.Dialect, string, error) {
	switch m.dialect {
	case "postgres":
		if m.schema == "" {
			m.schema = "public"
		}
		return schema.Postgres, m.schema, nil
	case "sqlite":
		return schema.SQLite, m.schema, nil
	case "":
	default:
		return 0, "", usageError{fmt.Errorf("--dialect is %q: it can be postgres or sqlite", m.dialect)}
	}
	c, err := a.load()
	if err != nil {
		return 0, "", err
	}
	if m.schema == "" {
		m.schema = c.Database.SchemaName()
	}
	return c.Database.Dialect(), m.schema, nil
}
