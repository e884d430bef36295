package relay

// Range is a run of sequence numbers, both ends included.
type Range struct{ First, Last int64 }
