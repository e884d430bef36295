package outbox

import (
	"encoding/binary"
	"encoding/hex"
	"io"
	"sync"
	"time"
)

// idSource makes UUIDs of version 7 (RFC 9562, 5.7): 48 bits of milliseconds, 12 bits of their fraction (6.2, method 3) and 62
// random bits. The first 60 bits grow with every id, also when the clock stands still or goes back.
type idSource struct {
	now    func() time.Time
	random io.Reader

	mu   sync.Mutex
	last uint64 // milliseconds and fraction of the id before
}

func (s *idSource) next() (string, error) {
	var id [16]byte
	if _, err := io.ReadFull(s.random, id[8:]); err != nil {
		return "", err
	}
	stamp := s.stamp()
	binary.BigEndian.PutUint64(id[:8], stamp>>12<<16|stamp&0xfff)
	id[6] |= 0x70             // version 7
	id[8] = id[8]&0x3f | 0x80 // variant 10

	var text [36]byte
	hex.Encode(text[0:8], id[0:4])
	hex.Encode(text[9:13], id[4:6])
	hex.Encode(text[14:18], id[6:8])
	hex.Encode(text[19:23], id[8:10])
	hex.Encode(text[24:36], id[10:16])
	text[8], text[13], text[18], text[23] = '-', '-', '-', '-'
	return string(text[:]), nil
}

// stamp returns the milliseconds since the epoch in units of 1/4096.
func (s *idSource) stamp() uint64 {
	now := s.now()
	sub := uint64(now.Nanosecond()) % uint64(time.Millisecond)
	stamp := uint64(now.UnixMilli())<<12 | sub<<12/uint64(time.Millisecond)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last = max(stamp, s.last+1)
	return s.last
}
