package config

import (
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/pillarbox-dev/pillarbox/destination/http"
	"github.com/pillarbox-dev/pillarbox/envelope"
)

// HTTP is a target over HTTP. See http.Config.
type HTTP struct {
	URL       URL       `yaml:"url,omitempty" schemes:"https,http"`
	Signature Signature `yaml:"signature,omitempty"`
	TokenFile string    `yaml:"token_file,omitempty"`
	Token     Secret    `yaml:"token,omitempty"`

	Endpoints        map[string]Endpoint `yaml:"endpoints,omitempty"`
	EndpointTable    bool                `yaml:"endpoint_table,omitempty"`
	EndpointHeader   string              `yaml:"endpoint_header,omitempty"`
	CredentialFolder string              `yaml:"credential_folder,omitempty"`
	MaxInFlight      int                 `yaml:"max_in_flight,omitempty"`

	Envelope *Envelope `yaml:"envelope,omitempty"`

	Method            string            `yaml:"method,omitempty" oneof:"POST,PUT"`
	IdempotencyHeader string            `yaml:"idempotency_header,omitempty"`
	IDHeader          string            `yaml:"id_header,omitempty"`
	TypeHeader        string            `yaml:"type_header,omitempty"`
	TopicHeader       string            `yaml:"topic_header,omitempty"`
	EventHeaders      EventHeaders      `yaml:"event_headers,omitempty"`
	UserAgent         string            `yaml:"user_agent,omitempty"`
	Profile           string            `yaml:"profile,omitempty" oneof:"default,strict"`
	Answers           map[string]string `yaml:"answers,omitempty"`
	MaxRetryAfter     Duration          `yaml:"max_retry_after,omitempty"`

	TLS            TLS      `yaml:"tls,omitempty"`
	Proxy          string   `yaml:"proxy,omitempty"`
	AllowPrivate   bool     `yaml:"allow_private,omitempty"`
	AllowAddresses []string `yaml:"allow_addresses,omitempty"`
}

// Signature says how bodies are signed. See http.Signing.
type Signature struct {
	Scheme      Schemes  `yaml:"scheme,omitempty" rule:"required" hint:"write sha256-hex or standard-webhooks"`
	Header      string   `yaml:"header,omitempty"`
	Prefix      string   `yaml:"prefix,omitempty"`
	SecretFile  string   `yaml:"secret_file,omitempty"`
	SecretFiles []string `yaml:"secret_files,omitempty"`
	Secret      Secret   `yaml:"secret,omitempty"`
}

// Endpoint is one of several places where a destination's events go. See http.Endpoint.
type Endpoint struct {
	URL         URL      `yaml:"url" rule:"required" schemes:"https,http" hint:"write https://host/path"`
	SecretFile  string   `yaml:"secret_file,omitempty"`
	SecretFiles []string `yaml:"secret_files,omitempty"`
	Secret      Secret   `yaml:"secret,omitempty"`
	TokenFile   string   `yaml:"token_file,omitempty"`
	Token       Secret   `yaml:"token,omitempty"`
	MaxInFlight int      `yaml:"max_in_flight,omitempty"`
	Enabled     *bool    `yaml:"enabled,omitempty"` // default true
}

// EventHeaders says what becomes of an event's own headers. See http.EventHeaders.
type EventHeaders struct {
	Omit   bool              `yaml:"omit,omitempty"`
	Prefix string            `yaml:"prefix,omitempty"`
	Rename map[string]string `yaml:"rename,omitempty"`
}

// TLS holds the trust and the certificate of a destination. See http.TLS.
type TLS struct {
	CAFile   string `yaml:"ca_file,omitempty"`
	CertFile string `yaml:"cert_file,omitempty"`
	KeyFile  string `yaml:"key_file,omitempty"`
}

// Schemes are the ways to sign: a word, or a list of words.
type Schemes []string

// The ways to sign.
const (
	SchemeHex      = "sha256-hex"
	SchemeStandard = "standard-webhooks"
)

func (s *Schemes) decodeNode(d *decoder, n *yaml.Node, path string, _ reflect.StructTag) {
	words := []*yaml.Node{n}
	if n.Kind == yaml.SequenceNode {
		words = n.Content
	}
	for _, word := range words {
		var text string
		d.text(word, path, reflect.ValueOf(&text).Elem(), SchemeHex+","+SchemeStandard)
		if slices.Contains(*s, text) {
			d.problem(word, path, path+" names "+text+" twice", "take one of them out")
		}
		*s = append(*s, text)
	}
}

// ---- As the destination wants it -------------------------------------------------------------------------------------

// Config returns the settings of the destination. Where the endpoints are kept in the table, the caller sets Endpoints.
func (h *HTTP) Config() http.Config {
	c := http.Config{
		EndpointHeader: h.EndpointHeader,
		MaxInFlight:    h.MaxInFlight,
		Method:         h.Method,
		Signing: http.Signing{
			Hex: slices.Contains(h.Signature.Scheme, SchemeHex), HexHeader: h.Signature.Header,
			Standard: slices.Contains(h.Signature.Scheme, SchemeStandard), StandardPrefix: h.Signature.Prefix,
		},
		Headers: http.HeaderNames{
			Idempotency: h.IdempotencyHeader, ID: h.IDHeader, Type: h.TypeHeader, Topic: h.TopicHeader,
		},
		EventHeaders:   http.EventHeaders{Omit: h.EventHeaders.Omit, Prefix: h.EventHeaders.Prefix, Rename: h.EventHeaders.Rename},
		UserAgent:      h.UserAgent,
		Profile:        http.Profile(h.Profile),
		MaxRetryAfter:  time.Duration(h.MaxRetryAfter),
		TLS:            http.TLS{CAFile: h.TLS.CAFile, CertFile: h.TLS.CertFile, KeyFile: h.TLS.KeyFile},
		Proxy:          h.Proxy,
		AllowPrivate:   h.AllowPrivate,
		AllowAddresses: h.AllowAddresses,
	}
	c.Envelope, _ = envelope.New(h.Envelope.config(envelope.HTTP)) // checked when it was loaded
	c.Overrides, _ = http.ParseOverrides(h.answers())              // checked when it was loaded
	if len(h.Endpoints) > 0 {
		static := http.StaticEndpoints{}
		for name, e := range h.Endpoints {
			static[name] = h.endpoint(e)
		}
		c.Endpoints = static
		return c
	}
	if !h.EndpointTable {
		c.Endpoint = h.endpoint(Endpoint{URL: h.URL})
	}
	return c
}

// endpoint fills in what an endpoint shares with its destination.
func (h *HTTP) endpoint(e Endpoint) http.Endpoint {
	files, secret := secretsOf(e.SecretFile, e.SecretFiles), e.Secret
	if len(files) == 0 && secret.IsZero() {
		files, secret = secretsOf(h.Signature.SecretFile, h.Signature.SecretFiles), h.Signature.Secret
	}
	tokenFile, token := e.TokenFile, e.Token
	if tokenFile == "" && token.IsZero() {
		tokenFile, token = h.TokenFile, h.Token
	}
	return http.Endpoint{
		URL: e.URL.Reveal(), SecretFiles: files, Secret: secret.Reveal(), TokenFile: tokenFile, Token: token.Reveal(),
		MaxInFlight: e.MaxInFlight, Disabled: !orTrue(e.Enabled),
	}
}

func secretsOf(file string, files []string) []string {
	if file != "" {
		return append([]string{file}, files...)
	}
	return files
}

// answers takes a code alone as the word of a reject: 402: REJECTED_BALANCE.
func (h *HTTP) answers() map[string]string {
	answers := map[string]string{}
	for status, text := range h.Answers {
		if text == strings.ToUpper(text) && !strings.Contains(text, " ") {
			text = "reject " + text
		}
		answers[status] = text
	}
	return answers
}

// Codes returns the codes that the destination's answers name.
func (h *HTTP) Codes() (codes []string) {
	overrides, _ := http.ParseOverrides(h.answers())
	for _, o := range overrides {
		if o.Code != "" {
			codes = append(codes, o.Code)
		}
	}
	return codes
}

// ---- Checks ----------------------------------------------------------------------------------------------------------

func (d *decoder) checkHTTP(path string, h *HTTP) {
	d.checkTargets(path, h)
	d.checkEnvelope(join(path, "envelope"), h.Envelope, envelope.HTTP)
	d.oneCredential(path+".signature", "secret", h.Signature.SecretFile != "" || len(h.Signature.SecretFiles) > 0, h.Signature.Secret)
	d.oneCredential(path, "token", h.TokenFile != "", h.Token)
	for name, e := range h.Endpoints {
		d.oneCredential(join(path+".endpoints", name), "secret", e.SecretFile != "" || len(e.SecretFiles) > 0, e.Secret)
		d.oneCredential(join(path+".endpoints", name), "token", e.TokenFile != "", e.Token)
	}
	for _, status := range slices.Sorted(maps.Keys(h.Answers)) {
		if _, err := http.ParseOverrides(map[string]string{status: h.answers()[status]}); err != nil {
			d.wrong(join(path+".answers", status), path+"."+err.Error(), "")
		}
	}
	if !d.failedBelow(path) {
		d.checkDestinationItself(path, h)
	}
}

// checkTargets wants exactly one way to say where events go.
func (d *decoder) checkTargets(path string, h *HTTP) {
	ways := 0
	for _, given := range []bool{!h.URL.IsZero(), len(h.Endpoints) > 0, h.EndpointTable} {
		if given {
			ways++
		}
	}
	switch {
	case d.failedBelow(path + ".url"), d.failedBelow(path + ".endpoints"), d.failedBelow(path + ".endpoint_table"):
	case ways == 0:
		d.wrong(path, path+" does not say where events go", "add url, endpoints, or endpoint_table: true")
	case ways > 1:
		d.wrong(path, path+" says in more than one way where events go", "keep one of url, endpoints and endpoint_table")
	case h.CredentialFolder != "" && !h.EndpointTable:
		d.wrong(path+".credential_folder", path+".credential_folder is for endpoint_table: true alone", "take it out")
	case h.EndpointTable && (h.Signature.SecretFile != "" || len(h.Signature.SecretFiles) > 0 || !h.Signature.Secret.IsZero()):
		d.wrong(path+".signature", path+".signature has a secret, but each row of the table names its own",
			"take it out, and name a file in the column secret_file")
	}
}

func (d *decoder) oneCredential(path, what string, file bool, value Secret) {
	if file && !value.IsZero() {
		d.wrong(join(path, what), join(path, what)+" stands beside its file", "keep one of them")
	}
}

// checkDestinationItself asks the destination what it holds of its settings. Its messages begin with the name of a setting.
func (d *decoder) checkDestinationItself(path string, h *HTTP) {
	c := h.Config()
	if h.EndpointTable {
		c.Endpoints = http.NewTable(http.TableConfig{})
	}
	_, err := http.New(c)
	if err == nil {
		return
	}
	for _, problem := range Each(err) {
		text := settings.Replace(problem.Error())
		words := strings.FieldsFunc(text, func(r rune) bool { return r == ' ' || r == ':' })
		at := join(path, words[0])
		if strings.Contains(text, "signature.secret_file") {
			at = path + ".signature"
		}
		if _, known := d.places[at]; !known {
			at = path
		}
		d.wrong(at, path+": "+text, "")
	}
}

// settings turns the destination's names of settings into the keys of the file.
var settings = strings.NewReplacer(
	"headers.idempotency:", "idempotency_header:", "headers.id:", "id_header:", "headers.type:", "type_header:",
	"headers.topic:", "topic_header:",
	"set secret_files (secret_file in the table outbox_endpoint)", "set signature.secret_file",
	"secret_files are set, but nothing is signed: switch a signature on or take them out",
	"there is a secret, but nothing is signed: add signature.scheme, or take signature.secret_file out",
	"signing.hex_header", "signature.header", "signing.standard_prefix", "signature.prefix",
)
