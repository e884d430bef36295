package main

import (
	"encoding/json"
	"testing"
)

func TestPayloadSize(t *testing.T) {
	for _, i := range []int{0, 1, 999_999_999_999} {
		p := payload(i)
		if len(p) != payloadSize || !json.Valid(p) {
			t.Errorf("payload(%d): %d bytes, valid JSON %v; want %d and true: %s", i, len(p), json.Valid(p), payloadSize, p)
		}
	}
}
