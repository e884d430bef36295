// Package webhook holds what the sender and the receiver of a signed HTTP delivery must agree on: the two signature
// schemes, sha256-hex and Standard Webhooks. There is one implementation, which the relay's HTTP destination signs with
// and receivers verify with.
//
// A signature covers the raw bytes of the body. A receiver that parses the body and writes it anew before it verifies
// refuses valid deliveries: 1.0 becomes 1.
//
// A service that receives deliveries uses NewHandler, which verifies, asks the inbox and handles the event in one transaction:
//
//	events, err := webhook.NewHandler(webhook.Config[pgx.Tx]{
//		Consumer: "billing",
//		Inbox:    box, // of inbox.New
//		Begin:    outbox.BeginPgx(pool),
//		Secrets:  readSecrets,
//		Handle: func(ctx context.Context, tx pgx.Tx, d webhook.Delivery) error {
//			... // the change, in tx
//		},
//	})
//	mux.Handle("/events", events)
package webhook
