package demo

import (
	"fmt"
	"net/url"
	"strings"
	"time"
)

// deliveryTimeout is how long the relay waits for an answer.
const deliveryTimeout = time.Second

// configuration is the relay's: impatient, so that much happens in little time. Attempts are many, because the black hole costs
// some and nothing is to be given up on.
func (d *demo) configuration() string {
	database := url.URL{Scheme: "sqlite", Path: d.path("outbox.db")}
	var endpoints strings.Builder
	for _, name := range suppliers {
		fmt.Fprintf(&endpoints, "        %s: {url: \"http://%s/%s\"}\n", name, d.receiver.addr, name)
	}
	return fmt.Sprintf(`database: {url: %q}
relay: {lease: 2s, drain: 3s}
log: {attempts: false}
destinations:
  %s:
    topics: [%s]
    timeout: %v
    retry: {base: 100ms, factor: 1.5, max: 1s, max_attempts: 100}
    breaker: {failures: 5, probe: 500ms, max_probe: 1s}
    http:
      endpoint_header: %s
      endpoints:
%s      signature: {scheme: standard-webhooks, secret_file: %q}
      answers: {422: reject %s}
      allow_addresses: [127.0.0.1]
`, database.String(), destination, topic, deliveryTimeout, supplierName, endpoints.String(), d.path("secret"), rejectedCode)
}

const destination = "suppliers"
