package config

import (
	"errors"
	"math"
	"strconv"
	"strings"
	"time"
)

// Duration is a time.Duration that is written as Go writes it (1h30m, 250ms), with d for days of 24 hours on top (7d, 1d12h).
type Duration time.Duration

// MaxDuration is the longest that may be written: about 100 years.
const MaxDuration = 36500 * 24 * time.Hour

// ParseDuration reads a duration as a configuration has it. The error goes on after "it".
func ParseDuration(text string) (Duration, error) {
	bad := errors.New("wants a duration such as 250ms, 15s, 1h30m or 7d")
	days, rest, hasDays := strings.Cut(text, "d")
	if !hasDays {
		days, rest = "0", text
	}
	n, err := strconv.ParseFloat(days, 64)
	if err != nil || strings.ContainsAny(days, "xXpPnNiI_") {
		return 0, bad
	}
	var d time.Duration
	if rest != "" {
		if d, err = time.ParseDuration(rest); err != nil {
			return 0, bad
		}
	} else if !hasDays {
		return 0, bad
	}
	total := n*float64(24*time.Hour) + float64(d)
	switch {
	case n < 0 || d < 0:
		return 0, errors.New("must not be negative")
	case total > float64(MaxDuration):
		return 0, errors.New("is longer than 100 years")
	}
	return Duration(time.Duration(n*float64(24*time.Hour)) + d), nil
}

func (d Duration) String() string { return time.Duration(d).String() }

// MarshalYAML prints the duration as it is written.
func (d Duration) MarshalYAML() (any, error) { return d.String(), nil }

// Size is a number of bytes, written with B, KiB, MiB or GiB.
type Size int64

var sizeUnits = []struct {
	suffix string
	bytes  float64
}{{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"B", 1}}

func parseSize(text string) (Size, error) {
	bad := errors.New("wants a size such as 512KiB, 64MiB or 1GiB")
	for _, unit := range sizeUnits {
		digits, ok := strings.CutSuffix(text, unit.suffix)
		if !ok {
			continue
		}
		digits = strings.TrimSpace(digits)
		n, err := strconv.ParseFloat(digits, 64)
		if err != nil || strings.ContainsAny(digits, "xXpPnNiI_") {
			return 0, bad
		}
		n *= unit.bytes
		switch {
		case n < 0:
			return 0, errors.New("must not be negative")
		case n > 1<<40:
			return 0, errors.New("is more than 1024GiB")
		case n != math.Trunc(n):
			return 0, errors.New("is not a whole number of bytes")
		}
		return Size(n), nil
	}
	return 0, bad
}

func (s Size) String() string {
	for i := 2; i >= 0; i-- {
		if unit := int64(sizeUnits[i].bytes); s != 0 && int64(s)%unit == 0 {
			return strconv.FormatInt(int64(s)/unit, 10) + sizeUnits[i].suffix
		}
	}
	return strconv.FormatInt(int64(s), 10) + "B"
}

// MarshalYAML prints the size as it is written.
func (s Size) MarshalYAML() (any, error) { return s.String(), nil }
