package relay

import (
	"context"
	"crypto/md5"
	"encoding/binary"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"
)

// MaxShards is how many shards a destination may have: each of them reads the numbers of the whole log.
const MaxShards = 64

// Shard is a part of a destination, with a cursor and a lease of its own: the events of some keys. The zero value is a
// destination in one piece.
type Shard struct {
	// Number counts from 0 to Of-1.
	Number int
	// Of is how many shards the destination has; 0 and 1: one.
	Of int
}

// Whole says that the destination is in one piece.
func (s Shard) Whole() bool { return s.Of <= 1 }

// Count is how many shards the destination has, at least 1.
func (s Shard) Count() int { return max(s.Of, 1) }

// String returns the shard as people read it: 1 of 4.
func (s Shard) String() string { return fmt.Sprintf("%d of %d", s.Number, s.Count()) }

// Holds tells whether an event belongs to the shard.
func (s Shard) Holds(key string, seq int64) bool { return ShardOf(key, seq, s.Count()) == s.Number }

// ShardOf returns the number of the shard that an event belongs to. It goes by the partition key, so that the events of a key stay in
// order; an event without one goes by its number. The function outbox_shard of the database says the same: the first 32 bits of
// the MD5, modulo the number of shards. MD5 because every database has it; it spreads, and guards nothing.
func ShardOf(key string, seq int64, shards int) int {
	if shards <= 1 {
		return 0
	}
	if key == "" {
		key = strconv.FormatInt(seq, 10)
	}
	sum := md5.Sum([]byte(key))
	return int(binary.BigEndian.Uint32(sum[:]) % uint32(shards))
}

// shares lets the relays of several processes share the shards of a destination: one that has a shard, or is trying to get
// one, waits for each of them before it tries to get another, so that a relay with less is there first.
type shares struct{ taken atomic.Int32 }

// mostShares bounds the wait.
const mostShares = 3

// take waits for this process's turn, and tells alive at each step that it does. The caller gives back what it took.
func (s *shares) take(ctx context.Context, step time.Duration, alive func()) {
	for range min(s.taken.Add(1)-1, mostShares) {
		alive()
		sleep(ctx, step)
	}
}

func (s *shares) giveBack() { s.taken.Add(-1) }
