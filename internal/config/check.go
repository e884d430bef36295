package config

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/pillarbox-dev/pillarbox/destination/kafka"
	"github.com/pillarbox-dev/pillarbox/outbox/schema"
	"github.com/pillarbox-dev/pillarbox/relay"
)

// check looks at what hangs together. What could not be read is left alone: its problem has been told.
func (d *decoder) check(c *Config) {
	d.checkDatabaseAt("database", c.Database)
	d.checkListen(c)
	d.checkDashboard(c)
	if c.Contracts != (Contracts{}) && c.Contracts.Dir == "" && !d.failed("contracts.dir") {
		d.wrong("contracts", "contracts names no folder", "say where the schemas are: contracts: {dir: contracts}")
	}
	if _, given := d.places["destinations"]; given && len(c.Destinations) == 0 && !d.failed("destinations") {
		d.wrong("destinations", "there is no destination", "nothing would ever be delivered: name at least one")
	}
	d.checkRetention(c)
	d.checkReconcile(c)
	d.checkHeartbeats(c)
	d.checkConsumers(c)
	for _, name := range c.Names() {
		d.checkDestination(c, name)
	}
}

func (d *decoder) checkDatabaseAt(path string, db Database) {
	if db.URL.IsZero() {
		return
	}
	dialect := db.Dialect()
	if dialect == schema.SQLite {
		if strings.Trim(db.URL.Reveal(), "/") == "sqlite:" {
			d.wrong(path+".url", path+".url names no file", "write sqlite:///path/to/file.db")
		}
		for key, given := range map[string]bool{
			"schema": db.Schema != "", "password_file": db.PasswordFile != "", "max_connections": db.MaxConnections != 0,
		} {
			if given {
				d.wrong(path+"."+key, path+"."+key+" is for PostgreSQL alone", "take it out")
			}
		}
		return
	}
	if db.MaxConnections == 1 {
		d.wrong(path+".max_connections", path+".max_connections is 1", "a destination reads while it settles: give at least 2")
	}
	if err := schema.CheckName(dialect, db.SchemaName()); err != nil && !d.failed(path+".schema") {
		d.wrong(path+".schema", path+".schema: "+err.Error(), "")
	}
	if db.PasswordFile != "" {
		d.checkPasswordFile(path, db)
	}
}

func (d *decoder) checkPasswordFile(path string, db Database) {
	parsed, err := url.Parse(db.URL.Reveal())
	if err != nil {
		return // decodeNode has seen to it
	}
	if _, has := parsed.User.Password(); has {
		d.wrong(path+".password_file", "there is a password in "+path+".url and in "+path+".password_file", "keep one of them")
	}
	if parsed.User.Username() == "" {
		d.wrong(path+".url", path+".url names no user, whose password "+path+".password_file would be",
			"write postgres://user@host/database")
	}
}

func (d *decoder) checkListen(c *Config) {
	if c.Listen == "" {
		return
	}
	host, port, err := net.SplitHostPort(c.Listen)
	if err == nil {
		_, err = strconv.ParseUint(port, 10, 16)
	}
	switch {
	case err != nil:
		d.wrong("listen", fmt.Sprintf("listen %q is no address with a port", shorten(c.Listen)), "write 127.0.0.1:9470")
	case !isLoopback(host) && !c.AllowRemote && !d.failed("allow_remote"):
		d.wrong("listen", fmt.Sprintf("listen %q can be reached from other machines, and it asks for no password", shorten(c.Listen)),
			"listen on 127.0.0.1, or add allow_remote: true when the network keeps strangers out")
	}
}

func isLoopback(host string) bool {
	if host == "localhost" {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.Unmap().IsLoopback()
}

func (d *decoder) checkDestination(c *Config, name string) {
	path, destination := "destinations."+name, c.Destinations[name]
	switch {
	case destination.HTTP == nil && destination.Kafka == nil && !d.failed(path):
		d.wrong(path, path+" says nothing about where it goes", "add http: {url: …} or kafka: {brokers: […]}")
	case destination.HTTP != nil && destination.Kafka != nil:
		d.wrong(path, path+" goes to http and to kafka", "make two destinations of it: each has a cursor of its own")
	}
	if destination.HTTP != nil {
		d.checkHTTP(path+".http", destination.HTTP)
	}
	if destination.Kafka != nil {
		d.checkKafka(path+".kafka", destination.Kafka)
	}
	retry := destination.Retry
	if len(retry.Delays) > 0 && (retry.Base != 0 || retry.Factor != 0 || retry.Max != 0) {
		d.wrong(path+".retry.delays", path+".retry has delays beside base, factor or max",
			"delays are used in turn, the last one for all further attempts: keep one of the two ways")
	}
	for i, pattern := range destination.Topics {
		if strings.TrimSpace(pattern) != pattern {
			d.wrong(fmt.Sprintf("%s.topics[%d]", path, i), fmt.Sprintf("the topic %q begins or ends with a space", shorten(pattern)),
				"take it away: topics are compared as they are")
		}
	}
	if !d.failed("relay") && !d.failed(path) {
		d.checkRelay(c, name)
	}
	if destination.Shards > 1 && !c.Database.URL.IsZero() && c.Database.Dialect() == schema.SQLite {
		d.wrong(path+".shards", path+".shards is for PostgreSQL alone",
			"take it out: SQLite has one writer, so a destination has one shard there")
	}
}

// checkRelay asks the relay what it holds of the destination, so that its rules stand in one place. Its messages begin with
// the key that they are about, which gives the line.
func (d *decoder) checkRelay(c *Config, name string) {
	config := relay.Config{Store: notOpened{}, Owner: "check", Lease: c.RelayConfig().Lease, Drain: c.RelayConfig().Drain}
	destination := c.Destinations[name].relay(name)
	destination.Destination = notOpenedEither{}
	if k := c.Destinations[name].Kafka; k != nil {
		if made, err := kafka.New(k.Config()); err == nil { // else its problems have been told
			defer made.Close()
			destination.Destination = made // its batch counts
		}
	}
	config.Destinations = []relay.DestinationConfig{destination}
	_, err := relay.New(config)
	if err == nil {
		return
	}
	for _, problem := range Each(err) {
		path, text := "relay", strings.TrimPrefix(problem.Error(), "relay: ")
		if inner := errors.Unwrap(problem); inner != nil {
			path, text = "destinations."+name, inner.Error()
		}
		key, _, _ := strings.Cut(text, " ")
		at := join(path, strings.TrimSuffix(key, ":"))
		if _, known := d.places[at]; !known && strings.HasPrefix(text, "timeout ") {
			at = "relay.lease" // a default that does not fit the lease
		}
		if _, known := d.places[at]; !known {
			at = path
		}
		d.wrong(at, path+": "+text, "")
	}
}

// notOpened and notOpenedEither stand for the store and the target while a configuration is checked. They are never called.
type (
	notOpened       struct{ relay.Store }
	notOpenedEither struct{ relay.Destination }
)

// wrong notes a problem with the key at a path.
func (d *decoder) wrong(path, text, hint string) { d.problemAt(d.places[path], path, text, hint) }

// failedBelow tells whether something at or below a path could not be read.
func (d *decoder) failedBelow(path string) bool {
	return slices.ContainsFunc(d.problems, func(p Problem) bool {
		rest, below := strings.CutPrefix(p.path, path)
		return below && (rest == "" || rest[0] == '.' || rest[0] == '[')
	})
}

// failed is the same without what is said of the target, which has its own checks.
func (d *decoder) failed(path string) bool {
	return slices.ContainsFunc(d.problems, func(p Problem) bool {
		rest, below := strings.CutPrefix(p.path, path)
		return below && (rest == "" || rest[0] == '.' || rest[0] == '[') && !strings.HasPrefix(rest, ".http") && !strings.HasPrefix(rest, ".kafka")
	})
}
