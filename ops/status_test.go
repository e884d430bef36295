package ops_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/pillarbox-dev/pillarbox/ops"
)

// What the API prints can be read back by a client in Go.
func TestSecondsInJSON(t *testing.T) {
	for _, want := range []time.Duration{0, time.Millisecond, 1234567 * time.Millisecond, 400 * 24 * time.Hour} {
		text, err := json.Marshal(ops.Seconds(want))
		if err != nil {
			t.Fatal(err)
		}
		var got ops.Seconds
		if err := json.Unmarshal(text, &got); err != nil || time.Duration(got) != want {
			t.Errorf("%s: got %v (%v), want %v", text, time.Duration(got), err, want)
		}
	}
	var s ops.Seconds
	if err := json.Unmarshal([]byte(`"1s"`), &s); err == nil {
		t.Error("a text is no number of seconds")
	}
}
