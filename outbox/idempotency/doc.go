// Package idempotency makes a command that is sent twice count once: the first response is stored in the same transaction as the
// change and its event, and whoever sends the command again with the same key gets that response.
//
//	command → idempotency → [ change · event · response ] → log → lanes → destination
//	                          one transaction
//
// A key is the client's, one for each command that it means. It is compared together with the operation, which says what is
// asked for and by whom, and with a fingerprint of the request: the same key with another request is an error of the client.
//
//	create := func(ctx context.Context) (idempotency.Response, error) {
//		... // the change and Enqueue, in tx
//		return idempotency.Response{Status: 201, Body: answer}, nil
//	}
//	r, replayed, err := keeper.Do(ctx, tx, key, "POST /cases of tenant 7", body, create)
//	if err != nil {
//		return err // and roll back
//	}
//	err = tx.Commit()
//
// NewHandler does so for net/http. The tables come from outbox/schema (`pillarbox migrate`).
//
// # Who asks
//
// A stored response is given to whoever sends the key. The operation must therefore name the authenticated caller: without it one
// tenant could be given the response that another one got, by a key that is guessed or used by chance.
//
// # The same command at the same time
//
// While a twin is open in another transaction, Do waits for its end, for Options.Wait (1 s) at most; then it returns ErrInFlight:
// answer "try again later" (409 with Retry-After). In PostgreSQL the transaction is then as good as before. SQLite has one writer
// at a time, waits for busy_timeout, and cannot tell a twin from another writer. At REPEATABLE READ and above PostgreSQL answers
// 40001 when a twin has committed meanwhile: run the transaction again, or use READ COMMITTED.
//
// # How long
//
// A response is kept for Options.Keep (24 h), by the database's clock. After that the key is as good as new, whether or not Prune
// has removed the row. Clients must not go on trying for longer.
package idempotency
