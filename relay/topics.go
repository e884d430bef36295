package relay

import "strings"

// Topics are the patterns of the topics that a destination wants: literal text in which * stands for any run of
// characters, also an empty one. Matching is case-sensitive. No patterns at all: every topic.
type Topics []string

// Match tells whether the topic is wanted.
func (t Topics) Match(topic string) bool {
	if len(t) == 0 {
		return true
	}
	for _, pattern := range t {
		if matchTopic(pattern, topic) {
			return true
		}
	}
	return false
}

func matchTopic(pattern, topic string) bool {
	literal, rest, star := strings.Cut(pattern, "*")
	if !star {
		return pattern == topic
	}
	if !strings.HasPrefix(topic, literal) {
		return false
	}
	topic = topic[len(literal):]
	for {
		literal, rest, star = strings.Cut(rest, "*")
		if !star {
			return strings.HasSuffix(topic, literal)
		}
		at := strings.Index(topic, literal)
		if at < 0 {
			return false
		}
		topic = topic[at+len(literal):]
	}
}
