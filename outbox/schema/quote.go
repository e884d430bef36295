package schema

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

// maxIdentifier is PostgreSQL's NAMEDATALEN - 1, in bytes. The server cuts longer names off, so that two may become one.
const maxIdentifier = 63

// Quote returns a name as a quoted SQL identifier, in PostgreSQL and SQLite alike.
func Quote(name string) string {
	return `"` + strings.ReplaceAll(name, `"`, `""`) + `"`
}

// QuoteLiteral returns a text as a PostgreSQL string constant, whatever standard_conforming_strings is.
func QuoteLiteral(text string) string {
	text = strings.ReplaceAll(text, `'`, `''`)
	if strings.Contains(text, `\`) {
		return ` E'` + strings.ReplaceAll(text, `\`, `\\`) + `'`
	}
	return `'` + text + `'`
}

// CheckName tells whether the tables can live in a schema of this name: in PostgreSQL any name, also one that needs quotes;
// in SQLite, which has no schemas, only "" or "main".
func CheckName(d Dialect, name string) error {
	if err := d.check(); err != nil {
		return err
	}
	if d == SQLite {
		if name != "" && name != "main" {
			return fmt.Errorf("schema %q: SQLite has no schemas: leave the name empty", name)
		}
		return nil
	}
	if strings.HasPrefix(name, "pg_") {
		return fmt.Errorf("schema %q: PostgreSQL keeps names that start with pg_ for itself: choose another", name)
	}
	if err := checkIdentifier(name); err != nil {
		return fmt.Errorf("schema %q: %w", name, err)
	}
	return nil
}

func checkIdentifier(name string) error {
	switch {
	case name == "":
		return errors.New("the name is empty: give one, public for example")
	case len(name) > maxIdentifier:
		return fmt.Errorf("the name has %d bytes: PostgreSQL keeps %d of them, so choose a shorter one", len(name), maxIdentifier)
	case strings.ContainsRune(name, 0):
		return errors.New("the name holds a NUL character: remove it")
	case !utf8.ValidString(name):
		return errors.New("the name is not valid UTF-8: use characters that are")
	}
	return nil
}
