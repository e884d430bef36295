package config

import "fmt"

// Consumer is who reads what a destination is sent, for the dashboard.
type Consumer struct {
	Destination string `yaml:"destination" rule:"required" hint:"say whose events it reads"`
	// Group is its consumer group, and DeadLetterTopic where it puts what it gives up, in the destination's cluster. Kafka only.
	Group           string `yaml:"group,omitempty"`
	DeadLetterTopic string `yaml:"dead_letter_topic,omitempty"`
	// Inbox is where it remembers what it has handled.
	Inbox *ConsumerInbox `yaml:"inbox,omitempty"`
}

// ConsumerInbox is a consumer's record of what it has handled.
type ConsumerInbox struct {
	Consumer string `yaml:"consumer" rule:"required" hint:"it is the column consumer of outbox_inbox"`
	// Database holds outbox_inbox. Default: the outbox's own.
	Database *Database `yaml:"database,omitempty"`
}

func (d *decoder) checkConsumers(c *Config) {
	for n, consumer := range c.Consumers {
		path := fmt.Sprintf("consumers[%d]", n)
		if d.failedBelow(path) {
			continue
		}
		destination, known := c.Destinations[consumer.Destination]
		switch {
		case !known:
			d.wrong(path, fmt.Sprintf("%s: there is no destination %q", path, shorten(consumer.Destination)),
				DidYouMean(consumer.Destination, c.Names()))
		case destination.Kafka == nil && consumer.Group+consumer.DeadLetterTopic != "":
			d.wrong(path, path+": group and dead_letter_topic are Kafka's, and "+consumer.Destination+" is no Kafka destination",
				"name its inbox: {consumer: …}")
		case consumer.Group+consumer.DeadLetterTopic == "" && consumer.Inbox == nil:
			d.wrong(path, path+" names nothing to look at", "add group, dead_letter_topic or inbox")
		}
		if consumer.Inbox != nil && consumer.Inbox.Database != nil {
			d.checkDatabaseAt(path+".inbox.database", *consumer.Inbox.Database)
		}
	}
}
