package main

import (
	"math"
	"slices"
	"time"
)

// percentile returns the value that the part p (0 to 1) of the sorted durations does not exceed, by the nearest rank. It
// is 0 when there are none.
func percentile(sorted []time.Duration, p float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	rank := int(math.Ceil(p * float64(len(sorted))))
	return sorted[min(max(rank, 1), len(sorted))-1]
}

// median returns the middle of the values, or the mean of the two in the middle; NaN when there are none.
func median(values []float64) float64 {
	if len(values) == 0 {
		return math.NaN()
	}
	sorted := slices.Sorted(slices.Values(values))
	middle := len(sorted) / 2
	if len(sorted)%2 == 1 {
		return sorted[middle]
	}
	return (sorted[middle-1] + sorted[middle]) / 2
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
