package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/pillarbox-dev/pillarbox/destination/http"
	"github.com/pillarbox-dev/pillarbox/examples/linkostar/platform"
	"github.com/pillarbox-dev/pillarbox/relay"
)

// destinations are the two outboxes: what is registered with suppliers, and what is activated there.
func destinations(c config) ([]relay.DestinationConfig, error) {
	registered, activated := http.StaticEndpoints{}, http.StaticEndpoints{}
	for name, s := range c.Suppliers {
		registered[platform.Endpoint(name, platform.HubKind)] = s.endpoint(s.HubRegistrationURL)
		registered[platform.Endpoint(name, platform.DeviceKind)] = s.endpoint(s.DeviceRegistrationURL)
		activated[platform.Endpoint(name, platform.ActivationKind)] = s.endpoint(s.ActivationURL)
	}
	registration, err := destination(c, platform.Registration, platform.RegistrationTopic, registered, nil)
	activation, err2 := destination(c, platform.Activations, platform.ActivationTopic, activated,
		map[string]string{"402": "reject " + platform.CodeBalance})
	// That many tenants have no balance is no sign that something is wrong here, until nothing else comes back any more.
	activation.Guard = relay.GuardConfig{Rejects: 100, Rate: 1, MinSamples: 100}
	return []relay.DestinationConfig{registration, activation}, errors.Join(err, err2)
}

func (s supplierConfig) endpoint(url string) http.Endpoint {
	e := http.Endpoint{URL: url, TokenFile: s.TokenFile}
	if s.SecretFile != "" {
		e.SecretFiles = []string{s.SecretFile}
	}
	return e
}

// destination is one outbox. A 4xx is final, whatever it says; 409 alone means that the same event is being handled there, after
// an answer that was lost, and is asked about again.
func destination(
	c config, name, topic string, endpoints http.StaticEndpoints, answers map[string]string,
) (d relay.DestinationConfig, err error) {
	overrides, err := http.ParseOverrides(answers)
	if err != nil {
		return d, err
	}
	overrides = append(overrides, http.Override{First: 409, Last: 409, Kind: relay.Retry})
	made, err := http.New(http.Config{
		Endpoints: endpoints, EndpointHeader: platform.EndpointHeader,
		Signing:      http.Signing{Hex: true, HexHeader: "X-LinkOStar-Signature"},
		Headers:      http.HeaderNames{Idempotency: "X-LinkOStar-Idempotency-Key", ID: "-", Type: "-", Topic: "-"},
		EventHeaders: http.EventHeaders{Omit: true},
		UserAgent:    "LinkOStar",
		Profile:      http.Strict, Overrides: overrides,
		AllowAddresses: c.Registration.AllowAddresses,
	})
	if err != nil {
		return d, fmt.Errorf("destination %s: %w", name, err)
	}
	retry := c.Registration.Retry
	return relay.DestinationConfig{
		Name: name, Destination: made, Topics: relay.Topics{topic}, Timeout: c.Registration.Timeout,
		// The relay waits Base × Factor^(n-1) after attempt n, and less by its jitter; here it is base × factor^n, exactly.
		Retry: relay.RetryPolicy{
			Base: retry.wait(1), Factor: retry.Factor, Max: retry.lastWait(), Jitter: -1, MaxAttempts: retry.Attempts,
		},
		// No connection costs the event an attempt, like a 503. Until there is one, the supplier is asked with one event at a time,
		// at the pace of the retries.
		ChargeOutages: true,
		Breaker:       relay.BreakerConfig{Probe: retry.Base, MaxProbe: max(retry.Base, 15*time.Minute)},
	}, nil
}
