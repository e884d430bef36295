// Package config reads pillarbox.yaml: strictly, with the environment filled in, and with every problem at once.
//
// A key that is not known, a value of the wrong type, a duration that is none, a variable that is not set: each is a Problem
// with its line, its column and a hint. The rules of the relay are checked here too, so that they come with their line.
// Secrets come from files or from the environment; one that is written into the file is refused. A Config can be
// printed: it does not show them.
package config

import (
	"fmt"
	"os"
	"reflect"
	"strings"

	"github.com/pillarbox-dev/pillarbox/outbox/schema"
	"go.yaml.in/yaml/v3"
)

// Config is what pillarbox.yaml says. What it leaves out has the zero value, which means the default, unless the field's
// comment says otherwise. The keys are explained in Example.
type Config struct {
	Database     Database               `yaml:"database" rule:"required" hint:"say where the outbox is: database: {url: …}"`
	Listen       string                 `yaml:"listen,omitempty"` // "": nothing is served
	AllowRemote  bool                   `yaml:"allow_remote,omitempty"`
	Dashboard    Dashboard              `yaml:"dashboard,omitempty"`
	Ready        Ready                  `yaml:"ready,omitempty"`
	Log          Log                    `yaml:"log,omitempty"`
	Relay        Relay                  `yaml:"relay,omitempty"`
	Contracts    Contracts              `yaml:"contracts,omitempty"`
	Retention    Retention              `yaml:"retention,omitempty"`
	Reconcile    Reconcile              `yaml:"reconcile,omitempty"`
	Heartbeats   []Heartbeat            `yaml:"heartbeats,omitempty"`
	Consumers    []Consumer             `yaml:"consumers,omitempty"`
	Destinations map[string]Destination `yaml:"destinations" rule:"required" hint:"name one: {NAME: {http: {url: …}}}"`
}

// Database is where the outbox is.
type Database struct {
	URL URL `yaml:"url" rule:"required" schemes:"postgres,postgresql,sqlite" hint:"write postgres://user@host/database or sqlite:///file.db"`
	// Schema holds the tables. Default public; PostgreSQL only.
	Schema string `yaml:"schema,omitempty"`
	// PasswordFile holds the password, when the URL does not. PostgreSQL only.
	PasswordFile string `yaml:"password_file,omitempty"`
	// MaxConnections bounds the relay's pool. Default: see Config.RelayDatabase; PostgreSQL only.
	MaxConnections int `yaml:"max_connections,omitempty"`
}

// Ready says when /readyz answers that all is well.
type Ready struct {
	// MaxPendingAge is how old the oldest pending event may be. Default: any age.
	MaxPendingAge Duration `yaml:"max_pending_age,omitempty"`
}

// Log says what is written to standard error.
type Log struct {
	Format   string `yaml:"format,omitempty" oneof:"text,json"`            // default text
	Level    string `yaml:"level,omitempty" oneof:"debug,info,warn,error"` // default info
	Attempts *bool  `yaml:"attempts,omitempty"`                            // a line per attempt; default true
}

// Relay holds what all destinations share. See relay.Config.
type Relay struct {
	Lease Duration `yaml:"lease,omitempty"`
	Drain Duration `yaml:"drain,omitempty"`
	Owner string   `yaml:"owner,omitempty"`
}

// Contracts are what events are held to before they are delivered. See contract.Config.
type Contracts struct {
	Dir     string `yaml:"dir,omitempty"` // "": events are held to nothing
	Draft   string `yaml:"draft,omitempty" oneof:"2020-12,draft-07"`
	Unknown string `yaml:"unknown,omitempty" oneof:"quarantine,pass"`
	Missing string `yaml:"missing,omitempty" oneof:"quarantine,pass"`
}

// Destination is one target and its rules. See relay.DestinationConfig.
type Destination struct {
	Topics           []string `yaml:"topics,omitempty"`
	Start            string   `yaml:"start,omitempty" oneof:"beginning,end"`
	Ledger           *bool    `yaml:"ledger,omitempty"` // default true
	Shards           int      `yaml:"shards,omitempty"`
	Timeout          Duration `yaml:"timeout,omitempty"`
	Concurrency      int      `yaml:"concurrency,omitempty"`
	MaxInFlight      int      `yaml:"max_in_flight,omitempty"`
	MaxInFlightBytes Size     `yaml:"max_in_flight_bytes,omitempty"`
	MaxHeldLanes     int      `yaml:"max_held_lanes,omitempty"`
	Retry            Retry    `yaml:"retry,omitempty"`
	OnQuarantine     string   `yaml:"on_quarantine,omitempty" oneof:"skip,hold"`
	ChargeOutages    bool     `yaml:"charge_outages,omitempty"`
	ErrorText        *bool    `yaml:"error_text,omitempty"` // default true
	Breaker          Breaker  `yaml:"breaker,omitempty"`
	Guard            Guard    `yaml:"guard,omitempty"`
	HTTP             *HTTP    `yaml:"http,omitempty"`
	Kafka            *Kafka   `yaml:"kafka,omitempty"`
}

// Retry says when a failed delivery is tried again. See relay.RetryPolicy.
type Retry struct {
	Base        Duration   `yaml:"base,omitempty"`
	Factor      float64    `yaml:"factor,omitempty"`
	Max         Duration   `yaml:"max,omitempty"`
	Jitter      *float64   `yaml:"jitter,omitempty" rule:"zero"`
	MaxAttempts int        `yaml:"max_attempts,omitempty"`
	Delays      []Duration `yaml:"delays,omitempty"`
}

// Breaker says when an endpoint counts as down. See relay.BreakerConfig.
type Breaker struct {
	Failures   int      `yaml:"failures,omitempty"`
	Rate       float64  `yaml:"rate,omitempty"`
	MinSamples int      `yaml:"min_samples,omitempty"`
	Window     Duration `yaml:"window,omitempty"`
	Probe      Duration `yaml:"probe,omitempty"`
	MaxProbe   Duration `yaml:"max_probe,omitempty"`
	PauseProbe Duration `yaml:"pause_probe,omitempty"`
}

// Guard says when so much is rejected that the destination is paused. See relay.GuardConfig.
type Guard struct {
	Enabled    *bool    `yaml:"enabled,omitempty"` // default true
	Rejects    int      `yaml:"rejects,omitempty"`
	Rate       float64  `yaml:"rate,omitempty"`
	MinSamples int      `yaml:"min_samples,omitempty"`
	Window     Duration `yaml:"window,omitempty"`
}

// maxFile is the size of a file that is certainly not a configuration.
const maxFile = 1 << 20

// Load reads and checks a file, with the environment of the process. The error holds all Problems, or says why the file cannot
// be read.
func Load(file string) (*Config, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read the configuration: %w: write one with 'pillarbox init', or name another with -c", err)
	}
	return Parse(file, data, os.LookupEnv)
}

// Parse is Load for what has been read already. The name of the file is for the messages alone.
func Parse(file string, data []byte, lookup func(string) (string, bool)) (*Config, error) {
	d := &decoder{file: file, lookup: lookup, places: map[string]place{"": {1, 1}}}
	c := &Config{}
	if root := d.document(data); root != nil {
		d.value(root, "", reflect.ValueOf(c).Elem(), "")
		d.check(c)
	}
	if len(d.problems) > 0 {
		return nil, d.problems.sorted()
	}
	return c, nil
}

// String prints the configuration as YAML, without secrets.
func (c *Config) String() string {
	text, err := yaml.Marshal(c)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// Dialect tells which database it is.
func (d Database) Dialect() schema.Dialect {
	if strings.HasPrefix(d.URL.Reveal(), "sqlite:") {
		return schema.SQLite
	}
	return schema.Postgres
}

// SchemaName returns the schema of the tables, with its default; "" for SQLite.
func (d Database) SchemaName() string {
	if d.Schema == "" && d.Dialect() == schema.Postgres {
		return "public"
	}
	return d.Schema
}
