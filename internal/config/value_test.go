package config

import (
	"testing"
	"time"
)

func TestParseDuration(t *testing.T) {
	const day = 24 * time.Hour
	for text, want := range map[string]time.Duration{
		"250ms": 250 * time.Millisecond, "15s": 15 * time.Second, "1h30m": 90 * time.Minute, "0s": 0,
		"7d": 7 * day, "1d12h": 36 * time.Hour, "0.5d": 12 * time.Hour, "36500d": MaxDuration,
	} {
		if got, err := ParseDuration(text); err != nil || time.Duration(got) != want {
			t.Errorf("ParseDuration(%q) = %v, %v, want %v", text, got, err, want)
		}
	}
	for _, text := range []string{"", "d", "15", "1w", "-1d", "-5s", "1d-5s", "5s1d", "36501d", "1e99d", "infd", "nand", "0x1d", "1d1d", " 1s", "1 d"} {
		if got, err := ParseDuration(text); err == nil {
			t.Errorf("ParseDuration(%q) = %v, want an error", text, got)
		}
	}
}

func TestParseSize(t *testing.T) {
	for text, want := range map[string]Size{
		"0B": 0, "512B": 512, "1KiB": 1 << 10, "64MiB": 64 << 20, "64 MiB": 64 << 20, "1.5KiB": 1536, "1GiB": 1 << 30, "1024GiB": 1 << 40,
	} {
		if got, err := parseSize(text); err != nil || got != want {
			t.Errorf("parseSize(%q) = %d, %v, want %d", text, got, err, want)
		}
	}
	for _, text := range []string{"", "64", "64MB", "64mib", "MiB", "-1MiB", "0.3B", "1025GiB", "infB", "nanB", "0x1B"} {
		if got, err := parseSize(text); err == nil {
			t.Errorf("parseSize(%q) = %d, want an error", text, got)
		}
	}
	for size, want := range map[Size]string{0: "0B", 512: "512B", 1536: "1536B", 64 << 20: "64MiB", 1 << 30: "1GiB"} {
		if got := size.String(); got != want {
			t.Errorf("Size(%d) = %s, want %s", size, got, want)
		}
	}
}

func TestExpand(t *testing.T) {
	variables := func(name string) (string, bool) {
		value, set := map[string]string{"A": "a", "EMPTY": "", "NESTED": "${A}"}[name]
		return value, set
	}
	for text, want := range map[string]string{
		"": "", "plain": "plain", "${A}": "a", "x${A}y${A}": "xaya", "${EMPTY}": "", "${EMPTY:-b}": "b", "${NO:-b}": "b", "${NO:-}": "",
		"${A:-b}": "a", "$A": "$A", "a$": "a$", "$${A}": "${A}", "$$${A}": "$${A}", "}": "}", "${NESTED}": "${A}", "${NO:-a:-b}": "a:-b",
	} {
		if got, err := expand(text, variables); err != nil || got.text != want {
			t.Errorf("expand(%q) = %q, %v, want %q", text, got.text, err, want)
		}
	}
	for _, text := range []string{"${", "${A", "${}", "${1}", "${NO}", "${a-b}", "${:-b}"} {
		if got, err := expand(text, variables); err == nil {
			t.Errorf("expand(%q) = %q, want an error", text, got.text)
		}
	}
}
