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

// shares lets the relays of several processes share the shards of a destination. One that holds n of m waits n/m of a lease before it
// tries to get another, so that a relay with less is there first. One unit of a process tries at a time: of those that have
// nothing yet each would think that it may.
type shares struct {
	trying chan struct{}
	held   atomic.Int32
}

func newShares() *shares { return &shares{trying: make(chan struct{}, 1)} }

// await waits for this process's turn to get one more of the shards; alive is told now and then that it waits. The caller calls
// tried as soon as it has tried, and lost when a shard that it got is gone; false: the context has ended.
func (s *shares) await(ctx context.Context, ttl time.Duration, shards int, alive func()) bool {
	began := time.Now()
	for {
		select {
		case s.trying <- struct{}{}:
			wait := ttl*time.Duration(s.held.Load())/time.Duration(shards) - time.Since(began)
			if wait <= 0 {
				return true
			}
			<-s.trying
			alive()
			sleep(ctx, min(wait, ttl/3))
		case <-time.After(ttl / 3):
			alive()
		case <-ctx.Done():
			return false
		}
		if ctx.Err() != nil {
			return false
		}
	}
}

// tried lets another unit try.
func (s *shares) tried(got bool) {
	if got {
		s.held.Add(1)
	}
	<-s.trying
}

func (s *shares) lost() { s.held.Add(-1) }
