package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"regexp"
	"slices"
	"time"

	"go.yaml.in/yaml/v3"
)

// config is the platform's configuration file. config.yaml beside this file has every key, explained.
type config struct {
	Suppliers    map[string]supplierConfig `yaml:"suppliers"`
	Registration registrationConfig        `yaml:"supplier-registration"`
	Relay        relayConfig               `yaml:"relay"`
}

// supplierConfig is where a supplier takes what. Secrets stand in files, which are read again for each attempt.
type supplierConfig struct {
	UUID                  string `yaml:"supplier_uuid"`
	HubRegistrationURL    string `yaml:"hub_registration_url"`
	DeviceRegistrationURL string `yaml:"device_registration_url"`
	ActivationURL         string `yaml:"activation_url"`
	SecretFile            string `yaml:"secret_file"`
	TokenFile             string `yaml:"token_file"` // "": no Authorization is sent
}

// registrationConfig is about both outboxes.
type registrationConfig struct {
	Retry retryConfig `yaml:"retry"`
	// Timeout bounds one attempt. Default 10 s.
	Timeout time.Duration `yaml:"timeout"`
	// AllowAddresses are ranges besides public ones that a supplier may have: 10.1.0.0/16, 127.0.0.1.
	AllowAddresses []string `yaml:"allow_addresses"`
}

// retryConfig: after attempt n the next one comes in base × factor^n; after the last one the delivery is dead.
type retryConfig struct {
	Base     time.Duration `yaml:"base"`     // default 1 min
	Attempts int           `yaml:"attempts"` // default 8
	Factor   float64       `yaml:"factor"`   // default 2
}

type relayConfig struct {
	// Lease is how long the work of a relay that died is left alone. Default 15 s.
	Lease time.Duration `yaml:"lease"`
}

// loadConfig reads a file strictly. Its error names every problem.
func loadConfig(path string) (c config, err error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return c, fmt.Errorf("read the configuration: %w: give its path with --config", err)
	}
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	decoder.KnownFields(true)
	if err := decoder.Decode(&c); err != nil && !errors.Is(err, io.EOF) {
		return c, fmt.Errorf("%s: %w: see examples/linkostar/config.yaml for the keys", path, err)
	}
	c.setDefaults()
	if problems := c.problems(); len(problems) > 0 {
		return c, fmt.Errorf("%s: %w", path, errors.Join(problems...))
	}
	return c, nil
}

func (c *config) setDefaults() {
	r := &c.Registration
	if r.Retry.Base == 0 {
		r.Retry.Base = time.Minute
	}
	if r.Retry.Attempts == 0 {
		r.Retry.Attempts = 8
	}
	if r.Retry.Factor == 0 {
		r.Retry.Factor = 2
	}
	if r.Timeout == 0 {
		r.Timeout = 10 * time.Second
	}
	if c.Relay.Lease == 0 {
		c.Relay.Lease = 15 * time.Second
	}
}

// maxWait bounds the wait before the last attempt: what nobody waits for is a mistake.
const maxWait = 30 * 24 * time.Hour

var (
	supplierName = regexp.MustCompile(`^[a-z][a-z0-9-]{0,49}$`)
	uuidForm     = regexp.MustCompile(`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)
)

// problems are those that the relay and its destinations do not see themselves.
func (c *config) problems() (problems []error) {
	bad := func(format string, args ...any) { problems = append(problems, fmt.Errorf(format, args...)) }
	if len(c.Suppliers) == 0 {
		bad("suppliers is empty: name at least one")
	}
	for _, name := range slices.Sorted(maps.Keys(c.Suppliers)) {
		s := c.Suppliers[name]
		if !supplierName.MatchString(name) {
			bad("suppliers: the name %q: use at most 50 of a-z, 0-9 and -, a letter first", name)
		}
		if !uuidForm.MatchString(s.UUID) {
			bad("suppliers.%s.supplier_uuid is %q: give a UUID in lower case", name, s.UUID)
		}
		for _, key := range []struct{ name, value string }{
			{"hub_registration_url", s.HubRegistrationURL}, {"device_registration_url", s.DeviceRegistrationURL},
			{"activation_url", s.ActivationURL}, {"secret_file", s.SecretFile},
		} {
			if key.value == "" {
				bad("suppliers.%s.%s is missing", name, key.name)
			}
		}
	}
	r := c.Registration.Retry
	if r.Base < time.Millisecond {
		bad("supplier-registration.retry.base is %v: use at least 1ms", r.Base)
	}
	if r.Attempts < 1 || r.Attempts > 100 {
		bad("supplier-registration.retry.attempts is %d: use 1 to 100", r.Attempts)
	}
	if r.Factor < 1 || r.Factor > 10 {
		bad("supplier-registration.retry.factor is %v: use 1 to 10", r.Factor)
	} else if r.lastWait() > maxWait {
		bad("supplier-registration.retry: the last wait would be more than %v: take a smaller factor, or fewer attempts", maxWait)
	}
	return problems
}

// wait is how long after attempt n, counted from 1, the next one comes.
func (r retryConfig) wait(n int) time.Duration {
	return time.Duration(min(float64(r.Base)*math.Pow(r.Factor, float64(n)), float64(math.MaxInt64/2)))
}

// lastWait is the longest.
func (r retryConfig) lastWait() time.Duration { return r.wait(max(1, r.Attempts-1)) }
