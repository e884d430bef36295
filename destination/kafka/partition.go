package kafka

import (
	"strings"
	"sync/atomic"

	"github.com/twmb/franz-go/pkg/kgo"
)

// partitionOf is the partition of a key among n, as the Java client's default partitioner has it.
func partitionOf(key []byte, n int32) int32 { return int32(murmur2(key)&0x7fffffff) % n }

// murmur2 is the 32-bit hash of that name by Austin Appleby, with the seed that Kafka uses.
func murmur2(data []byte) uint32 {
	const (
		seed = 0x9747b28c
		m    = 0x5bd1e995
		r    = 24
	)
	h := seed ^ uint32(len(data))
	for ; len(data) >= 4; data = data[4:] {
		k := uint32(data[0]) | uint32(data[1])<<8 | uint32(data[2])<<16 | uint32(data[3])<<24
		k *= m
		k ^= k >> r
		k *= m
		h = h*m ^ k
	}
	switch len(data) {
	case 3:
		h ^= uint32(data[2]) << 16
		fallthrough
	case 2:
		h ^= uint32(data[1]) << 8
		fallthrough
	case 1:
		h ^= uint32(data[0])
		h *= m
	}
	h ^= h >> 13
	h *= m
	return h ^ h>>15
}

// rotation gives turns to records without a key: a call keeps to one partition while that has room, so that batches are big.
type rotation struct{ turns atomic.Uint32 }

func (r *rotation) next(n int) int { return int((r.turns.Add(1) - 1) % uint32(n)) }

const topicHint = "use 1 to 249 of a-z, A-Z, 0-9, '.', '_' and '-'"

// topicFault says what is wrong with the name of a topic, as Kafka has it (org.apache.kafka.common.internals.Topic).
func topicFault(name string) string {
	switch {
	case name == "":
		return "is empty"
	case name == "." || name == "..":
		return "is no name"
	case len(name) > 249:
		return "has more than 249 characters"
	}
	for _, c := range []byte(name) {
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', strings.IndexByte("._-", c) >= 0:
		default:
			return "has a character that a topic cannot have"
		}
	}
	return ""
}

// Sizes in bytes of what stands around keys and values, with every variable length at its greatest.
const (
	batchOverhead  = 96
	recordOverhead = 48
	headerOverhead = 10
)

// recordSize is what a record takes in a batch, at most.
func recordSize(r *kgo.Record) int {
	size := recordOverhead + len(r.Key) + len(r.Value)
	for _, h := range r.Headers {
		size += headerOverhead + len(h.Key) + len(h.Value)
	}
	return size
}
