package http

import (
	"context"
	"crypto/tls"
	"errors"

	"github.com/pillarbox-dev/pillarbox/relay"
)

// Destination delivers events over HTTP. Make it with New; its methods may be called by several goroutines at once.
type Destination struct {
	config  Config
	headers headers
	answers *answers
	rule    addressRule
	clients clients
	files   *files
	streaks streaks
}

// It is what the relay knows as a Router, a Limiter and a Checker.
var (
	_ relay.Destination = (*Destination)(nil)
	_ relay.Router      = (*Destination)(nil)
	_ relay.Limiter     = (*Destination)(nil)
	_ relay.Checker     = (*Destination)(nil)
)

// New returns the destination that c describes. The error joins all that is wrong with it. No file is read and nothing is
// dialled before Check or Deliver.
func New(c Config) (*Destination, error) {
	problems := c.problems()
	c = c.withDefaults()
	headers, headerProblems := newHeaders(c)
	rule, ruleProblems := newAddressRule(c.AllowPrivate, c.AllowAddresses)
	proxy, err := newProxy(c.Proxy)
	problems = append(append(problems, headerProblems...), ruleProblems...)
	if err != nil {
		problems = append(problems, err)
	}
	if len(problems) > 0 {
		return nil, errors.Join(problems...)
	}
	d := &Destination{
		config: c, headers: headers, rule: rule, answers: newAnswers(c.Profile, c.Overrides), files: newFiles(),
	}
	d.clients = clients{files: c.TLS, make: func(t *tls.Config) *client { return newClient(rule, proxy, t) }}
	return d, nil
}

// Endpoint implements relay.Router: the name that the event gives, "" when there is just one endpoint.
func (d *Destination) Endpoint(e *relay.Event) string {
	switch {
	case d.config.Endpoints == nil:
		return ""
	case d.config.EndpointHeader == "":
		return e.Key
	}
	own, err := e.HeaderMap()
	if err != nil {
		return "" // Deliver rejects it and says why
	}
	return own[d.config.EndpointHeader]
}

// Several implements relay.Router: with a URL of its own a destination has one endpoint.
func (d *Destination) Several() bool { return d.config.Endpoints != nil }

// EndpointLimit implements relay.Limiter.
func (d *Destination) EndpointLimit(name string) int {
	if e, ok := d.lookup(name); ok && e.MaxInFlight > 0 {
		return e.MaxInFlight
	}
	return d.config.MaxInFlight
}

// Close lets go of idle connections. Deliver still works afterwards.
func (d *Destination) Close() { d.clients.close() }

// Deliver implements relay.Destination.
func (d *Destination) Deliver(ctx context.Context, batch []relay.Delivery) []relay.Outcome {
	outcomes := make([]relay.Outcome, len(batch))
	for i := range batch {
		outcomes[i] = d.deliver(ctx, batch[i].Event, batch[i].Endpoint)
	}
	return outcomes
}

func (d *Destination) deliver(ctx context.Context, e *relay.Event, name string) relay.Outcome {
	if ctx.Err() != nil {
		return interrupted(ctx, false)
	}
	a := attempt{d: d, name: name}
	var out *relay.Outcome
	if a.endpoint, out = d.find(ctx, e, name); out != nil {
		return *out
	}
	if a.message, out = d.compose(e); out != nil {
		return *out
	}
	var err error
	if err = a.endpoint.needsSecret(d.config.Signing); err != nil {
		return paused(CodeConfig, err.Error())
	}
	if a.url, err = a.endpoint.target(); err != nil {
		return paused(CodeConfig, err.Error())
	}
	if err = d.rule.checkHost(a.url.Hostname()); err != nil {
		return paused(CodePolicy, err.Error())
	}
	if a.client, err = d.clients.get(); err != nil {
		return paused(CodeConfig, err.Error())
	}
	if a.credentials, err = a.endpoint.credentials(d.files); err != nil {
		return paused(CodeConfig, err.Error())
	}
	return a.run(ctx)
}

// find returns the endpoint, or the outcome of a delivery that has none.
func (d *Destination) find(ctx context.Context, e *relay.Event, name string) (Endpoint, *relay.Outcome) {
	found, ok := d.lookup(name)
	var out relay.Outcome
	if r, refreshes := d.config.Endpoints.(refresher); !ok && refreshes {
		if err := r.Refresh(ctx); err != nil {
			if out = interrupted(ctx, false); ctx.Err() == nil {
				out = unavailable(CodeConfig, "the endpoints are not known: "+printable(err.Error())+": check the database")
			}
			return found, &out
		}
		found, ok = d.lookup(name)
	}
	switch {
	case !ok && name == "":
		return found, d.nameless(e)
	case !ok:
		out = paused(CodeConfig, "endpoint "+quote(name)+" is not known: add it, and its deliveries go on")
	case found.Disabled:
		out = paused(CodeConfig, "endpoint "+quote(name)+" is disabled: enable it, and its deliveries go on")
	default:
		return found, nil
	}
	return found, &out
}

func (d *Destination) lookup(name string) (Endpoint, bool) {
	if d.config.Endpoints == nil {
		return d.config.Endpoint, true
	}
	return d.config.Endpoints.Lookup(name)
}

func (d *Destination) nameless(e *relay.Event) *relay.Outcome {
	if d.config.EndpointHeader == "" {
		return reject(CodeNoTarget, "the event has no partition key, which names the endpoint: "+
			"discard it and enqueue it again with one")
	}
	if _, err := e.HeaderMap(); err != nil {
		return reject(CodeHeaders, err.Error()+": repair the headers, then retry")
	}
	return reject(CodeNoTarget, "the event has no header "+quote(d.config.EndpointHeader)+
		", which names the endpoint: repair the headers, then retry")
}
