// Package webhook holds what the sender and the receiver of a signed HTTP delivery must agree on: the two signature
// schemes, sha256-hex and Standard Webhooks. There is one implementation, which the relay's HTTP destination signs with
// and receivers verify with.
//
// A signature covers the raw bytes of the body. A receiver that parses the body and writes it anew before it verifies
// refuses valid deliveries: 1.0 becomes 1.
package webhook
