// Package serverlog shows what a server that a test has started wrote to its log.
package serverlog

import (
	"bytes"
	"fmt"
	"os"
)

// most is how much of a log is worth reading.
const most = 16 << 10

// Size is where a log ends now; Tail from there on is what comes later.
func Size(path string) int64 {
	info, err := os.Stat(path)
	if err != nil {
		return 0
	}
	return info.Size()
}

// Tail returns what was logged since an offset, of that the last 16 KiB.
func Tail(path string, from int64) string {
	log, err := os.ReadFile(path)
	if err != nil {
		return fmt.Sprintf("(no log: %v)", err)
	}
	log = log[min(from, int64(len(log))):]
	return string(bytes.TrimSpace(log[max(0, len(log)-most):]))
}
