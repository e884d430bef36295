package main

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// cpuTime is how long processors have worked: for this process, and for the server with all of its processes. Other than a
// rate it does not depend on what else the machine does.
type cpuTime struct{ own, server time.Duration }

func (c cpuTime) since(before cpuTime) cpuTime {
	return cpuTime{c.own - before.own, c.server - before.server}
}

// cpu reads both. The server's is 0 when it is not one that was started here.
func (s *session) cpu() (c cpuTime, err error) {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		return c, fmt.Errorf("read the processor time: %w", err)
	}
	c.own = time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
	if s.serverPID != 0 {
		c.server, err = familyCPU(s.serverPID)
	}
	return c, err
}

// clockTick is the unit of processor times in /proc on Linux.
const clockTick = 10 * time.Millisecond

// familyCPU sums up the processor time of a process and its children, the ended ones too.
func familyCPU(parent int) (time.Duration, error) {
	own, err := readStat(parent)
	if err != nil {
		return 0, fmt.Errorf("read the processor time of PostgreSQL: %w", err)
	}
	sum := own.worked + own.children
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return 0, err
	}
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		if p, err := readStat(pid); err == nil && p.parent == parent { // an error: it has ended meanwhile
			sum += p.worked
		}
	}
	return sum, nil
}

// processStat is some of /proc/PID/stat.
type processStat struct {
	parent           int
	worked, children time.Duration // children: those that have ended and were waited for
}

func readStat(pid int) (p processStat, err error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return p, err
	}
	// The name stands in parentheses and may hold anything; the fields behind it are counted from 3.
	_, rest, _ := strings.Cut(string(text[strings.LastIndexByte(string(text), ')'):]), " ")
	fields := strings.Fields(rest)
	if len(fields) < 15 {
		return p, fmt.Errorf("/proc/%d/stat has %d fields behind the name", pid, len(fields))
	}
	number := func(field int) (n int) {
		if err == nil {
			n, err = strconv.Atoi(fields[field-3])
		}
		return n
	}
	p.parent = number(4)
	p.worked = time.Duration(number(14)+number(15)) * clockTick
	p.children = time.Duration(number(16)+number(17)) * clockTick
	return p, err
}
