package main

import (
	"fmt"
	"os"
	"runtime/debug"
	"runtime/metrics"
	"strings"
	"time"
)

// peaks are the most memory that this process had while it was watched, in bytes. Resident counts everything that is the
// process's, also the benchmark's own few megabytes.
type peaks struct{ heap, resident uint64 }

// memoryWatch watches this process: the heap by sampling, the resident size by the kernel's own high-water mark.
type memoryWatch struct {
	stop chan struct{}
	heap chan uint64
}

const sampleEvery = 10 * time.Millisecond

// watchMemory gives back what was freed before, resets the high-water mark, and starts.
func watchMemory() (*memoryWatch, error) {
	debug.FreeOSMemory()
	if err := os.WriteFile("/proc/self/clear_refs", []byte("5"), 0); err != nil {
		return nil, fmt.Errorf("reset the high-water mark of the resident size (Linux only): %w", err)
	}
	w := &memoryWatch{stop: make(chan struct{}), heap: make(chan uint64)}
	go w.sample()
	return w, nil
}

func (w *memoryWatch) sample() {
	sample := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	tick := time.NewTicker(sampleEvery)
	defer tick.Stop()
	var most uint64
	for {
		metrics.Read(sample)
		most = max(most, sample[0].Value.Uint64())
		select {
		case <-tick.C:
		case <-w.stop:
			w.heap <- most
			return
		}
	}
}

// finish ends the watch. It must be called once.
func (w *memoryWatch) finish() (peaks, error) {
	close(w.stop)
	p := peaks{heap: <-w.heap}
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return p, err
	}
	for line := range strings.Lines(string(status)) {
		if value, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			var kilobytes uint64
			if _, err := fmt.Sscanf(value, "%d kB", &kilobytes); err != nil {
				return p, fmt.Errorf("read VmHWM of /proc/self/status: %w", err)
			}
			p.resident = kilobytes << 10
			return p, nil
		}
	}
	return p, fmt.Errorf("/proc/self/status has no VmHWM")
}

func megabytes(bytes uint64) float64 { return float64(bytes) / 1e6 }
