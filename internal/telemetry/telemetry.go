// Package telemetry turns what a relay tells its Observer into Prometheus metrics and log lines.
//
//	transaction → log → lanes → destination → outcome → settle
//	              └──────────── Observers: Metrics, AttemptLog ─┘
//
// Nothing in here sees a payload, and no label has a value that an event could choose: destinations are those of the
// configuration, and a code that is not known becomes OTHER.
package telemetry

import (
	"time"

	"github.com/pillarbox-dev/pillarbox/relay"
)

// Observers passes everything on to each of several observers, in order.
type Observers []relay.Observer

var _ relay.Observer = Observers{}

// Read implements relay.Observer.
func (all Observers) Read(destination string, events int, took time.Duration) {
	for _, o := range all {
		o.Read(destination, events, took)
	}
}

// Attempted implements relay.Observer.
func (all Observers) Attempted(destination string, attempts []relay.Attempt) {
	for _, o := range all {
		o.Attempted(destination, attempts)
	}
}

// Settled implements relay.Observer.
func (all Observers) Settled(destination string, s relay.SettleReport) {
	for _, o := range all {
		o.Settled(destination, s)
	}
}

// Noticed implements relay.Observer.
func (all Observers) Noticed(destination string, n relay.Notice) {
	for _, o := range all {
		o.Noticed(destination, n)
	}
}
