package config

import (
	"errors"
	"strings"
	"testing"
)

// Each file has problems; each problem is told with its place and with what to do.
func TestProblems(t *testing.T) {
	const (
		db   = "database: {url: sqlite:///a.db}\n"
		dest = "destinations: {a: {http: {url: https://a.example}}}\n"
	)
	for name, tt := range map[string]struct {
		file string
		want []string
	}{
		// ---- The file
		"empty": {"", []string{
			`f.yaml: is empty: 'pillarbox init' writes one that explains every key`}},
		"comments alone": {"# nothing\n", []string{
			`f.yaml: is empty: 'pillarbox init' writes one that explains every key`}},
		"nothing required": {"{}", []string{
			`f.yaml:1:1: database is missing: say where the outbox is: database: {url: …}`,
			`f.yaml:1:1: destinations is missing: name one: {NAME: {http: {url: …}}}`}},
		"a list": {"- a\n", []string{
			`f.yaml:1:1: the file wants a mapping of keys, this is a list`}},
		"no YAML": {"database: {url: x\n", []string{
			`f.yaml:1:1: is not valid YAML: did not find expected ',' or '}': check the indentation and the quotes around it`}},
		"a tab": {"database:\n\turl: x\n", []string{
			`f.yaml:2:1: is not valid YAML: found character that cannot start any token: indent line 2 with spaces, not with a tab`}},
		"a variable in braces": {"database: {url: ${X}}\n", []string{
			`f.yaml: is not valid YAML: did not find expected ',' or '}': within { }, put ${NAME} in quotes (line 1)`}},
		"not UTF-8": {"database: \xff\n", []string{
			`f.yaml: is not valid YAML: invalid leading UTF-8 octet: check the indentation and the quotes around it`}},
		"two documents": {db + dest + "---\na: b\n", []string{
			`f.yaml:3:1: a second document begins here: keep to one, without a line of ---`}},
		"a second document that is no YAML": {db + dest + "---\n{", []string{
			`f.yaml:4:1: is not valid YAML: did not find expected node content: check the indentation and the quotes around it`}},
		"too big": {strings.Repeat("# this is a comment\n", 60_000), []string{
			`f.yaml: has 1200000 bytes, which is more than 1MiB: is it the right file?`}},

		// ---- Keys
		"an unknown key, near a known one": {db + dest + "relay: {leese: 15s}\n", []string{
			`f.yaml:3:9: unknown key "leese" in relay: did you mean "lease"?`}},
		"in other letters": {db + dest + "Relay: {Lease: 15s}\n", []string{
			`f.yaml:3:1: unknown key "Relay": did you mean "relay"?`}},
		"an unknown key, near none": {db + dest + "relay: {colour: red}\n", []string{
			`f.yaml:3:9: unknown key "colour" in relay: known here: drain, lease, owner`}},
		"a key twice": {db + dest + "relay:\n  lease: 15s\n  lease: 20s\n", []string{
			`f.yaml:5:3: the key "lease" in relay stands here twice: the first is in line 4: take one of them out`}},
		"a destination twice": {db + "destinations:\n  a: {http: {url: https://a.example}}\n  a: {http: {url: https://b.example}}\n", []string{
			`f.yaml:4:3: the key "a" in destinations stands here twice: the first is in line 3: take one of them out`}},
		"a variable as key": {db + dest + "relay: {\"${LEASE}\": 15s}\n", []string{
			`f.yaml:3:9: the key "${LEASE}" in relay holds a variable: variables are filled in in values only`}},
		"an anchor": {db + "destinations:\n  a: &a\n    http: {url: https://a.example}\n  b: *a\n", []string{
			`f.yaml:3:6: destinations.a uses an anchor or an alias, which are not supported: write the value out`,
			`f.yaml:5:6: destinations.b uses an anchor or an alias, which are not supported: write the value out`}},
		"a tag": {db + dest + "relay: {lease: !!str 15s}\n", []string{
			`f.yaml:3:16: relay.lease has the tag !!str, which is not supported: write the value without it`}},

		// ---- Types
		"no value": {db + dest + "relay: {lease: }\n", []string{
			`f.yaml:3:16: relay.lease has no value: give it one, or take the key out to get the default`}},
		"text for a number": {db + dest + "relay: {lease: soon}\n", []string{
			`f.yaml:3:16: relay.lease is "soon": it wants a duration such as 250ms, 15s, 1h30m or 7d`}},
		"a duration without unit": {db + dest + "relay: {lease: 15}\n", []string{
			`f.yaml:3:16: relay.lease is "15": it wants a duration such as 250ms, 15s, 1h30m or 7d`}},
		"zero": {db + dest + "relay: {lease: 0s}\n", []string{
			`f.yaml:3:16: relay.lease is "0s": it must be more than 0; take the key out to get the default`}},
		"negative": {db + dest + "relay: {lease: -5s}\n", []string{
			`f.yaml:3:16: relay.lease is "-5s": it must not be negative`}},
		"a mapping for a word": {db + dest + "listen: {port: 80}\n", []string{
			`f.yaml:3:9: listen wants text, this is a mapping of keys`}},
		"a number for a word": {db + dest + "listen: 9470\n", []string{
			`f.yaml:3:9: listen wants text, this is a number or a date: put it in quotes`}},
		"a word for a mapping": {db + dest + "relay: fast\n", []string{
			`f.yaml:3:8: relay wants a mapping of keys, this is text`}},
		"a word for a list": {db + "destinations: {a: {topics: orders, http: {url: https://a.example}}}\n", []string{
			`f.yaml:2:28: destinations.a.topics wants a list, this is text: write it in brackets: ["orders"]`}},
		"an empty list": {db + "destinations: {a: {topics: [], http: {url: https://a.example}}}\n", []string{
			`f.yaml:2:28: destinations.a.topics is an empty list: name something, or take the key out to get the default`}},
		"yes for true": {db + dest + "allow_remote: yes\n", []string{
			`f.yaml:3:15: allow_remote is "yes": it wants true or false`}},
		"quoted true": {db + dest + "allow_remote: \"true\"\n", []string{
			`f.yaml:3:15: allow_remote wants true or false, not text: take the quotes away`}},
		"an unknown word": {db + dest + "log: {format: xml}\n", []string{
			`f.yaml:3:15: log.format is "xml": it can be text or json`}},
		"an empty word": {db + dest + "log: {format: ''}\n", []string{
			`f.yaml:3:15: log.format is empty: give it a value, or take the key out to get the default`}},
		"two lines": {db + dest + "listen: \"127.0.0.1:1\\n\"\n", []string{
			`f.yaml:3:9: listen holds a line break or another control character: write it in one line`}},
		"a bad size and a bad number": {db + `destinations:
  a:
    max_in_flight: 4.5
    max_in_flight_bytes: 64MB
    concurrency: 99999999999
    retry: {factor: nan, jitter: -1}
    http: {url: https://a.example}
`, []string{
			`f.yaml:4:20: destinations.a.max_in_flight is "4.5": it wants a whole number, at most 2147483647`,
			`f.yaml:5:26: destinations.a.max_in_flight_bytes is "64MB": it wants a size such as 512KiB, 64MiB or 1GiB`,
			`f.yaml:6:18: destinations.a.concurrency is "99999999999": it wants a whole number, at most 2147483647`,
			`f.yaml:7:21: destinations.a.retry.factor is "nan": it wants a number such as 0.5`,
			`f.yaml:7:34: destinations.a.retry.jitter is "-1": it must not be negative`}},

		// ---- Variables and secrets
		"a variable that is not set": {"database: {url: \"${NOWHERE}\"}\n" + dest, []string{
			`f.yaml:1:17: database.url: the environment variable NOWHERE is not set: set it, or write ${NOWHERE:-default}`}},
		"a brace that is not closed": {db + dest + "relay: {owner: \"${HOST\"}\n", []string{
			`f.yaml:3:16: relay.owner: a ${ is not closed: write ${NAME}, or $${ for the characters themselves`}},
		"no name of a variable": {db + dest + "relay: {owner: \"${a b}\"}\n", []string{
			`f.yaml:3:16: relay.owner: a ${ } holds no name of a variable: ` +
				`write ${NAME} or ${NAME:-default}, with letters, digits and _`}},
		"a bad value out of the environment": {db + dest + "relay: {lease: \"${SECRET}\"}\n", []string{
			`f.yaml:3:16: relay.lease is what SECRET in the environment says: it wants a duration such as 250ms, 15s, 1h30m or 7d`}},
		"a secret in the file": {db + `destinations:
  a:
    http:
      url: https://a.example
      signature: {scheme: sha256-hex, secret: hunter2}
      token: "Bearer ${SECRET}"
`, []string{
			`f.yaml:6:47: destinations.a.http.signature.secret is written into the file: ` +
				`a secret comes from secret_file, or from the environment as ${NAME} alone`,
			`f.yaml:7:14: destinations.a.http.token is written into the file: ` +
				`a secret comes from token_file, or from the environment as ${NAME} alone`}},
		"a secret as default": {db + `destinations:
  a:
    http:
      url: https://a.example
      signature: {scheme: sha256-hex, secret: "${NOWHERE:-hunter2}"}
`, []string{
			`f.yaml:6:47: destinations.a.http.signature.secret is written into the file: ` +
				`a secret comes from secret_file, or from the environment as ${NAME} alone`}},
		"an empty secret": {db + `destinations:
  a:
    http:
      url: https://a.example
      signature: {scheme: sha256-hex, secret: "${EMPTY}"}
`, []string{
			`f.yaml:6:47: destinations.a.http.signature.secret is empty (from EMPTY in the environment): set the variable to the secret`}},
		"a password in the URL": {"database: {url: \"postgres://app:hunter2@localhost/app\"}\n" + dest, []string{
			`f.yaml:1:17: database.url has a password written into the file: take it from the environment, as in ${NAME}, or from a file`}},
		"a password as parameter": {"database: {url: \"postgres://localhost/app?password=hunter2\"}\n" + dest, []string{
			`f.yaml:1:17: database.url has a credential (password) written into the file: ` +
				`take it from the environment, as in ${NAME}, or from a file`}},
		"a key in an endpoint's URL": {db + "destinations: {a: {http: {url: \"https://a.example/?api_key=hunter2\"}}}\n", []string{
			`f.yaml:2:32: destinations.a.http.url has a credential (api_key) written into the file: ` +
				`take it from the environment, as in ${NAME}, or from a file`}},

		// ---- Addresses
		"no address": {"database: {url: \"postgres://a b:x\"}\n" + dest, []string{
			`f.yaml:1:17: database.url is no valid address: write it as postgres://…, with special characters in a password percent-encoded`}},
		"another database": {"database: {url: \"mysql://localhost/app\"}\n" + dest, []string{
			`f.yaml:1:17: database.url does not begin with postgres:// or postgresql:// or sqlite://: write the whole address`}},
		"no file": {"database: {url: \"sqlite://\"}\n" + dest, []string{
			`f.yaml:1:17: database.url names no file: write sqlite:///path/to/file.db`}},
		"settings of the other database": {"database: {url: sqlite:///a.db, schema: a, password_file: b, max_connections: 4}\n" + dest, []string{
			`f.yaml:1:41: database.schema is for PostgreSQL alone: take it out`,
			`f.yaml:1:59: database.password_file is for PostgreSQL alone: take it out`,
			`f.yaml:1:79: database.max_connections is for PostgreSQL alone: take it out`}},
		"a bad schema and too few connections": {
			"database: {url: postgres://localhost/app, schema: pg_temp, max_connections: 1}\n" + dest, []string{
				`f.yaml:1:51: database.schema: schema "pg_temp": PostgreSQL keeps names that start with pg_ for itself: choose another`,
				`f.yaml:1:77: database.max_connections is 1: a destination reads while it settles: give at least 2`}},
		"two passwords": {"database: {url: \"postgres://app:${SECRET}@localhost/app\", password_file: /run/pw}\n" + dest, []string{
			`f.yaml:1:74: there is a password in database.url and in database.password_file: keep one of them`}},
		"a password of nobody": {"database: {url: postgres://localhost/app, password_file: /run/pw}\n" + dest, []string{
			`f.yaml:1:17: database.url names no user, whose password database.password_file would be: ` +
				`write postgres://user@host/database`}},
		"no port": {db + dest + "listen: localhost\n", []string{
			`f.yaml:3:9: listen "localhost" is no address with a port: write 127.0.0.1:9470`}},
		"for everybody": {db + dest + "listen: 0.0.0.0:9470\n", []string{
			`f.yaml:3:9: listen "0.0.0.0:9470" can be reached from other machines, and it asks for no password: ` +
				`listen on 127.0.0.1, or add allow_remote: true when the network keeps strangers out`}},
		"for everybody, shorter": {db + dest + "listen: :9470\n", []string{
			`f.yaml:3:9: listen ":9470" can be reached from other machines, and it asks for no password: ` +
				`listen on 127.0.0.1, or add allow_remote: true when the network keeps strangers out`}},
		"a dashboard for everybody": {db + dest + "listen: 0.0.0.0:9470\nallow_remote: true\n", []string{
			`f.yaml:3:9: listen "0.0.0.0:9470" opens the dashboard and the API to other machines, and nobody is named who may use ` +
				`them: add dashboard: {tokens: [{name: …, role: operator, file: …}]}, or users with a password_file; ` +
				`dashboard: {enabled: false} serves neither`}},
		"a dashboard for nobody": {db + dest + "dashboard: {tokens: [{name: ci, role: viewer, file: /run/ci}]}\n", []string{
			`f.yaml:3:1: dashboard names who may use it, and it is not served: add listen: 127.0.0.1:9470`}},
		"half a credential": {db + dest + "listen: 127.0.0.1:0\ndashboard:\n  tokens:\n  - {name: ci, role: admin}\n" +
			"  users:\n  - {role: viewer, password: x}\n", []string{
			`f.yaml:6:5: dashboard.tokens[0].file is missing: name the file that holds the token`,
			`f.yaml:6:22: dashboard.tokens[0].role is "admin": it can be viewer or operator`,
			`f.yaml:8:5: dashboard.users[0].name is missing: it stands in the operators' log`,
			`f.yaml:8:5: dashboard.users[0].password_file is missing: name the file that holds the password`,
			`f.yaml:8:20: unknown key "password" in dashboard.users[0]: known here: name, password_file, role`}},
		"consumers of nothing": {db + dest + "consumers:\n- {destination: none, group: g}\n- {destination: a, dead_letter_topic: t}\n" +
			"- {destination: a}\n- {destination: a, inbox: {database: {url: sqlite:///x}}}\n", []string{
			`f.yaml:4:3: consumers[0]: there is no destination "none": known here: a`,
			`f.yaml:5:3: consumers[1]: group and dead_letter_topic are Kafka's, and a is no Kafka destination: ` +
				`name its inbox: {consumer: …}`,
			`f.yaml:6:3: consumers[2] names nothing to look at: add group, dead_letter_topic or inbox`,
			`f.yaml:7:20: consumers[3].inbox.consumer is missing: it is the column consumer of outbox_inbox`}},
		"names that are not told apart": {db + dest + "listen: 127.0.0.1:0\ndashboard:\n" +
			"  tokens: [{name: ops, role: viewer, file: /a}, {name: local operator, role: viewer, file: /b}]\n" +
			"  users: [{name: ops, role: viewer, password_file: /c}, {name: \"a:b\", role: viewer, password_file: /d}]\n", []string{
			`f.yaml:5:56: dashboard.tokens[1].name: the name "local operator" cannot be used: choose another of at most 200 bytes`,
			`f.yaml:6:18: dashboard.users[0].name: the name "ops" is that of dashboard.tokens[0].name as well: ` +
				`give each its own: it stands in the operators' log`,
			`f.yaml:6:64: dashboard.users[1].name: the name "a:b" holds a colon: take it out: browsers cannot send it`}},

		// ---- Destinations
		"no destination": {db + "destinations: {}\n", []string{
			`f.yaml:2:1: there is no destination: nothing would ever be delivered: name at least one`}},
		"nowhere to go": {db + "destinations: {a: {timeout: 5s}}\n", []string{
			`f.yaml:2:16: destinations.a says nothing about where it goes: add http: {url: …} or kafka: {brokers: […]}`}},
		"a bad name": {db + "destinations: {a b: {http: {url: https://a.example}}}\n", []string{
			`f.yaml:2:16: destinations.a b: name must have 1 to 100 characters of a-z, A-Z, 0-9, '-', '_' and '.'`}},
		"a lease shorter than the timeout": {db + `relay:
  lease: 5s
destinations:
  a:
    timeout: 8s
    http: {url: https://a.example}
`, []string{
			`f.yaml:6:14: destinations.a: timeout 8s does not fit in the lease of 5s: a delivery may take two thirds of it. ` +
				`Set the timeout to at most 3.333s, or the lease to at least 12s`}},
		"a lease out of bounds": {db + dest + "relay: {lease: 2h}\n", []string{
			`f.yaml:3:16: relay: lease 2h0m0s is outside 1s to 1h0m0s`}},
		"the relay's rules": {db + `destinations:
  a:
    concurrency: 20000
    retry: {base: 2h, max: 1h, factor: 0.5}
    breaker: {rate: 1.5}
    http: {url: https://a.example}
`, []string{
			`f.yaml:4:18: destinations.a: concurrency 20000 is outside 1 to 10000`,
			`f.yaml:5:28: destinations.a: retry.max 1h0m0s is less than retry.base 2h0m0s`,
			`f.yaml:5:40: destinations.a: retry.factor 0.5 is outside 1 to 100`,
			`f.yaml:6:21: destinations.a: breaker.rate 1.5 is outside 0 to 1`}},
		"shards that cannot be": {db + `destinations:
  a: {shards: 65, http: {url: https://a.example}}
  b: {shards: 0, http: {url: https://b.example}}
  c:
    shards: 3
    ledger: false
    concurrency: 20000
    http: {url: https://c.example}
`, []string{
			`f.yaml:3:15: destinations.a.shards is for PostgreSQL alone: ` +
				`take it out: SQLite has one writer, so a destination has one shard there`,
			`f.yaml:3:15: destinations.a: shards 65 is outside 1 to 64`,
			`f.yaml:4:15: destinations.b.shards is "0": it must be more than 0; take the key out to get the default`,
			`f.yaml:6:13: destinations.c.shards is for PostgreSQL alone: ` +
				`take it out: SQLite has one writer, so a destination has one shard there`,
			`f.yaml:6:13: destinations.c: shards 3 need the ledger: without it nobody could tell what lies between the positions of ` +
				`two shards from what is pending. Use one shard, or keep the ledger`,
			`f.yaml:8:18: destinations.c: concurrency 20000 is outside 1 to 10000`}},
		"delays beside a base": {db + "destinations: {a: {retry: {base: 1s, delays: [5s]}, http: {url: https://a.example}}}\n", []string{
			`f.yaml:2:38: destinations.a.retry has delays beside base, factor or max: ` +
				`delays are used in turn, the last one for all further attempts: keep one of the two ways`}},
		"a topic with a space": {db + "destinations: {a: {topics: ['orders.* '], http: {url: https://a.example}}}\n", []string{
			`f.yaml:2:29: the topic "orders.* " begins or ends with a space: take it away: topics are compared as they are`}},

		// ---- HTTP
		"no target": {db + "destinations: {a: {http: {}}}\n", []string{
			`f.yaml:2:20: destinations.a.http does not say where events go: add url, endpoints, or endpoint_table: true`}},
		"two targets": {db + "destinations: {a: {http: {url: https://a.example, endpoint_table: true}}}\n", []string{
			`f.yaml:2:20: destinations.a.http says in more than one way where events go: keep one of url, endpoints and endpoint_table`}},
		"another scheme": {db + "destinations: {a: {http: {url: 'ftp://a.example'}}}\n", []string{
			`f.yaml:2:32: destinations.a.http.url does not begin with https:// or http://: write the whole address`}},
		"no host": {db + "destinations: {a: {http: {url: 'https:///hook'}}}\n", []string{
			`f.yaml:2:32: destinations.a.http.url names no host: write https://host/path`}},
		"a scheme without a secret": {db + "destinations: {a: {http: {url: https://a.example, signature: {scheme: sha256-hex}}}}\n", []string{
			`f.yaml:2:51: destinations.a.http: there is no secret to sign with: set signature.secret_file`}},
		"a secret without a scheme": {db + "destinations: {a: {http: {url: https://a.example, signature: {secret_file: /s}}}}\n", []string{
			`f.yaml:2:51: destinations.a.http.signature.scheme is missing: write sha256-hex or standard-webhooks`}},
		"an unknown scheme": {
			db + "destinations: {a: {http: {url: https://a.example, signature: {scheme: md5, secret_file: /s}}}}\n", []string{
				`f.yaml:2:71: destinations.a.http.signature.scheme is "md5": it can be sha256-hex or standard-webhooks`}},
		"two ways to a secret": {db + `destinations:
  a:
    http:
      url: https://a.example
      signature: {scheme: [sha256-hex, standard-webhooks], secret_file: /s, secret: "${SECRET}"}
      token_file: /t
      token: ${SECRET}
`, []string{
			`f.yaml:6:85: destinations.a.http.signature.secret stands beside its file: keep one of them`,
			`f.yaml:8:14: destinations.a.http.token stands beside its file: keep one of them`}},
		"answers and headers": {db + `destinations:
  a:
    http:
      url: https://a.example
      idempotency_header: "not a header"
      allow_addresses: [10.0.0.0/33]
      proxy: gopher://proxy
`, []string{
			`f.yaml:6:27: destinations.a.http: idempotency_header: "not a header" is no header name: use letters, digits and -`,
			`f.yaml:7:7: destinations.a.http: allow_addresses: "10.0.0.0/33" is no address range: write it like 10.1.0.0/16 or 10.1.2.3`,
			`f.yaml:8:14: destinations.a.http: proxy has the scheme "gopher": use http, https or socks5`}},
		"bad answers": {db + `destinations:
  a:
    http:
      url: https://a.example
      answers:
        404: maybe
        99: retry
`, []string{
			`f.yaml:7:14: destinations.a.http.answers: 404: "maybe" is no meaning: write published, retry, reject or unavailable`,
			`f.yaml:8:13: destinations.a.http.answers: 99: is neither a status from 200 to 599 nor a class: write it like 404 or 5xx`}},

		// ---- All at once
		"everything": {`databas: {url: sqlite:///a.db}
listen: 0.0.0.0:1
relay: {lease: 15}
destinations:
  a: {http: {url: nowhere}}
  b: {timeout: 1h, http: {url: https://b.example, answer: 1}}
`, []string{
			`f.yaml:1:1: database is missing: say where the outbox is: database: {url: …}`,
			`f.yaml:1:1: unknown key "databas": did you mean "database"?`,
			`f.yaml:2:9: listen "0.0.0.0:1" can be reached from other machines, and it asks for no password: ` +
				`listen on 127.0.0.1, or add allow_remote: true when the network keeps strangers out`,
			`f.yaml:3:16: relay.lease is "15": it wants a duration such as 250ms, 15s, 1h30m or 7d`,
			`f.yaml:5:19: destinations.a.http.url does not begin with https:// or http://: write the whole address`,
			`f.yaml:6:51: unknown key "answer" in destinations.b.http: did you mean "answers"?`}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Parse("f.yaml", []byte(tt.file), testVariables)
			if err == nil {
				t.Fatalf("Parse found no problem, want %q", tt.want)
			}
			got := strings.Split(err.Error(), "\n")
			for i := range max(len(got), len(tt.want)) {
				g, w := at(got, i), at(tt.want, i)
				if g != w {
					t.Errorf("problem %d:\n got %s\nwant %s", i+1, g, w)
				}
			}
			var problem Problem
			if !errors.As(err, &problem) || problem.File != "f.yaml" {
				t.Errorf("errors.As finds no Problem in %T", err)
			}
			if strings.Contains(err.Error(), "hunter2") || strings.Contains(err.Error(), "s3cret") {
				t.Errorf("a message shows a secret: %v", err)
			}
		})
	}
}

func at(lines []string, i int) string {
	if i < len(lines) {
		return lines[i]
	}
	return "(none)"
}

func testVariables(name string) (string, bool) {
	value, set := map[string]string{"SECRET": "s3cret", "EMPTY": ""}[name]
	return value, set
}

func TestLoadSaysWhatToDoAboutAMissingFile(t *testing.T) {
	_, err := Load(t.TempDir() + "/pillarbox.yaml")
	if err == nil || !strings.HasSuffix(err.Error(), "write one with 'pillarbox init', or name another with -c") {
		t.Errorf("Load = %v, want a hint", err)
	}
}
