package outbox_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/pillarbox-dev/pillarbox/outbox"
	"github.com/pillarbox-dev/pillarbox/outbox/schema"
)

// A service accepts a case: the case's row and the event that tells of it are one transaction.
func ExampleOutbox_Enqueue() {
	accept := func(ctx context.Context, db *sql.DB, box *outbox.Outbox, id string) error {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer tx.Rollback() // after a commit it does nothing
		if _, err := tx.ExecContext(ctx, "update cases set status = 'ACCEPTED' where id = $1", id); err != nil {
			return err
		}
		payload, err := json.Marshal(map[string]string{"caseId": id})
		if err != nil {
			return err
		}
		if _, err := box.Enqueue(ctx, tx, outbox.Event{Topic: "cases", Key: id, Type: "CaseAccepted", Payload: payload}); err != nil {
			return err
		}
		return tx.Commit()
	}
	_ = accept
}

// An event that is optional: when it fails, the transaction goes back to the savepoint and goes on without it.
func ExampleOutbox_Enqueue_savepoint() {
	withReminder := func(ctx context.Context, tx *sql.Tx, box *outbox.Outbox, reminder outbox.Event) error {
		if _, err := tx.ExecContext(ctx, "savepoint reminder"); err != nil {
			return err
		}
		if _, err := box.Enqueue(ctx, tx, reminder); err != nil {
			_, err = tx.ExecContext(ctx, "rollback to savepoint reminder") // the event, if written, is gone
			return err
		}
		_, err := tx.ExecContext(ctx, "release savepoint reminder")
		return err
	}
	_ = withReminder
}

// What is wrong with events is told at once, field by field.
func ExampleInvalidError() {
	box, err := outbox.New(outbox.Postgres, outbox.Options{})
	if err != nil {
		panic(err)
	}
	var tx *sql.Tx // not used: nothing is sent for events that are not valid
	_, err = box.Enqueue(context.Background(), tx, outbox.Event{Topic: "cases", Payload: []byte(`{"caseId":`)})
	if invalid := (*outbox.InvalidError)(nil); errors.As(err, &invalid) {
		for _, p := range invalid.Problems {
			fmt.Println(p)
		}
	}
	// Output:
	// event 0: Type is empty: every event has one
	// event 0: Payload is not valid JSON from byte 10 on: make it with encoding/json, or leave it nil for a tombstone; PayloadBytes is for what is not JSON
}

// A service makes the tables at its start, or only looks whether they are there.
func Example_migrate() {
	start := func(ctx context.Context, db *sql.DB) error {
		if _, err := schema.Migrate(ctx, db, schema.Postgres, "integration"); err != nil {
			return err
		}
		return schema.Check(ctx, db, schema.Postgres, "integration")
	}
	_ = start
}
