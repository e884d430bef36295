package ops

import (
	"context"
	"fmt"
	"net/url"
)

// MaxEndpoints is how many endpoints Endpoints returns at most.
const MaxEndpoints = 500

// Endpoint is a line of outbox_endpoint.
type Endpoint struct {
	Endpoint string `json:"endpoint"`
	// Address is the scheme and the host of its URL. The rest may be secret: a password, a key in the query or in the path.
	Address     string `json:"address"`
	MaxInFlight int    `json:"max_in_flight,omitempty"` // 0: the destination's
	Enabled     bool   `json:"enabled"`
}

// Endpoints returns the first endpoints of a destination that takes them from the table.
func (o *Ops) Endpoints(ctx context.Context, destination string) ([]Endpoint, error) {
	failed := func(err error) ([]Endpoint, error) {
		return nil, fmt.Errorf("read the endpoints of %s: %w", destination, err)
	}
	var query string
	if err := fill(o.dialect, o.schemaName, map[string]*string{"endpoints": &query}); err != nil {
		return failed(err)
	}
	rows, err := o.db.QueryContext(ctx, query, destination, MaxEndpoints)
	if err != nil {
		return failed(err)
	}
	defer rows.Close()
	var all []Endpoint
	for rows.Next() {
		var e Endpoint
		if err := rows.Scan(&e.Endpoint, &e.Address, &e.MaxInFlight, &e.Enabled); err != nil {
			return failed(err)
		}
		e.Address = PlainAddress(e.Address)
		all = append(all, e)
	}
	if err := rows.Err(); err != nil {
		return failed(err)
	}
	return all, nil
}

// PlainAddress is what of a URL may be shown: the scheme and the host.
func PlainAddress(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return ""
	}
	return (&url.URL{Scheme: u.Scheme, Host: u.Host}).String()
}
