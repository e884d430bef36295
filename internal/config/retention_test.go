package config

import (
	"reflect"
	"testing"
	"time"

	"github.com/pillarbox-dev/pillarbox/ops"
	"github.com/pillarbox-dev/pillarbox/relay"
)

const retentionHead = "database: {url: sqlite:///x.db}\ndestinations: {a: {http: {url: https://x.example}}}\n"

func TestRetention(t *testing.T) {
	c, err := Parse("f.yaml", []byte(retentionHead+"retention: {rules: [{topics: [\"a.*\"], after: 365d, archive: true}, {after: 30d}]}\n"),
		noVariables)
	if err != nil {
		t.Fatal(err)
	}
	want := ops.RetentionConfig{Destinations: []string{"a"}, Rules: []ops.RetentionRule{
		{Topics: relay.Topics{"a.*"}, After: 365 * 24 * time.Hour, Archive: true}, {After: 30 * 24 * time.Hour},
	}}
	if got := c.Retention.Config(c.Names()); !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if got := c.Retention.Interval(); got != time.Hour {
		t.Errorf("every: got %v, want an hour", got)
	}
	c, err = Parse("f.yaml", []byte(retentionHead+"retention: {every: 7m, chunk: 50, pause: 0s, rules: [{after: 1h}]}\n"), noVariables)
	if err != nil {
		t.Fatal(err)
	}
	if got := c.Retention.Config(nil); got.Chunk != 50 || got.Pause >= 0 || c.Retention.Interval() != 7*time.Minute {
		t.Errorf("got %+v every %v, want chunks of 50 without a pause, every 7 minutes", got, c.Retention.Interval())
	}
}

func TestRetentionProblems(t *testing.T) {
	for name, c := range map[string]struct {
		text string
		want []string
	}{
		"no rules": {"retention: {every: 1h}\n",
			[]string{`f.yaml:3:1: retention has no rules, so everything is kept: add rules: [{after: 30d}], or take it out`}},
		"too much, and no age": {"retention:\n  chunk: 10001\n  rules: [{archive: true}]\n", []string{
			`f.yaml:4:10: retention.chunk is 10001: at most 10000 events go in one transaction`,
			`f.yaml:5:11: retention.rules[0].after is missing: say at which age events go: after: 30d`}},
		"unreachable": {"retention:\n  rules:\n  - {after: 30d}\n  - {topics: [\" a\"], after: 0s}\n", []string{
			`f.yaml:5:5: retention.rules[0] is for every topic, so those behind it are never reached: put it last`,
			`f.yaml:6:15: the topic " a" begins or ends with a space: take it away: topics are compared as they are`,
			`f.yaml:6:29: retention.rules[1].after is "0s": it must be more than 0; take the key out to get the default`}},
	} {
		_, err := Parse("f.yaml", []byte(retentionHead+c.text), noVariables)
		var got []string
		if err != nil {
			for _, problem := range Each(err) {
				got = append(got, problem.Error())
			}
		}
		if !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s:\n got %q\nwant %q", name, got, c.want)
		}
	}
}
