package config

import (
	"fmt"
	"strings"
	"time"

	"github.com/pillarbox-dev/pillarbox/ops"
	"github.com/pillarbox-dev/pillarbox/relay"
)

// Retention says how long events are kept. See ops.RetentionConfig.
type Retention struct {
	Every Duration        `yaml:"every,omitempty"` // default DefaultRetentionEvery
	Rules []RetentionRule `yaml:"rules,omitempty"` // none: everything is kept
	Chunk int             `yaml:"chunk,omitempty"`
	Pause *Duration       `yaml:"pause,omitempty" rule:"zero"`
}

// RetentionRule says it of some topics.
type RetentionRule struct {
	Topics  []string `yaml:"topics,omitempty"` // none: all
	After   Duration `yaml:"after" rule:"required" hint:"say at which age events go: after: 30d"`
	Archive bool     `yaml:"archive,omitempty"`
}

// DefaultRetentionEvery is the time from one run of retention to the next.
const DefaultRetentionEvery = time.Hour

// Interval is the time from one run to the next.
func (r Retention) Interval() time.Duration {
	if r.Every == 0 {
		return DefaultRetentionEvery
	}
	return time.Duration(r.Every)
}

// Config returns the settings. All of the named destinations must have begun before anything is deleted.
func (r Retention) Config(destinations []string) ops.RetentionConfig {
	c := ops.RetentionConfig{Destinations: destinations, Chunk: r.Chunk}
	if r.Pause != nil {
		if c.Pause = time.Duration(*r.Pause); c.Pause == 0 {
			c.Pause = -1 // the word for none
		}
	}
	for _, rule := range r.Rules {
		c.Rules = append(c.Rules, ops.RetentionRule{
			Topics: relay.Topics(rule.Topics), After: time.Duration(rule.After), Archive: rule.Archive,
		})
	}
	return c
}

func (d *decoder) checkRetention(c *Config) {
	r := c.Retention
	if _, given := d.places["retention"]; given && len(r.Rules) == 0 && (r.Every != 0 || r.Chunk != 0 || r.Pause != nil) &&
		!d.failed("retention") {
		d.wrong("retention", "retention has no rules, so everything is kept", "add rules: [{after: 30d}], or take it out")
	}
	if r.Chunk > ops.MaxRetentionChunk {
		d.wrong("retention.chunk", fmt.Sprintf("retention.chunk is %d", r.Chunk),
			fmt.Sprintf("at most %d events go in one transaction", ops.MaxRetentionChunk))
	}
	if len(r.Rules) > ops.MaxRules {
		d.wrong("retention.rules", fmt.Sprintf("retention has %d rules", len(r.Rules)), fmt.Sprintf("it can have %d", ops.MaxRules))
	}
	for n, rule := range r.Rules {
		path := fmt.Sprintf("retention.rules[%d]", n)
		if len(rule.Topics) == 0 && n < len(r.Rules)-1 && !d.failed(path) {
			d.wrong(path, path+" is for every topic, so those behind it are never reached", "put it last")
		}
		for i, topic := range rule.Topics {
			if strings.TrimSpace(topic) != topic {
				d.wrong(fmt.Sprintf("%s.topics[%d]", path, i), fmt.Sprintf("the topic %q begins or ends with a space", shorten(topic)),
					"take it away: topics are compared as they are")
			}
		}
	}
}
