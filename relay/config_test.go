package relay

import (
	"context"
	"strings"
	"testing"
	"time"
)

type nowhere struct{}

func (nowhere) Deliver(_ context.Context, batch []Delivery) []Outcome {
	return make([]Outcome, len(batch))
}

func TestNewReportsAllProblemsAtOnce(t *testing.T) {
	_, err := New(Config{
		Lease: 100 * time.Millisecond,
		Destinations: []DestinationConfig{
			{Name: "a b", Concurrency: -1, Retry: RetryPolicy{MaxAttempts: -1, Jitter: 2}},
			{Name: "c", Destination: nowhere{}},
			{Name: "c", Destination: nowhere{}},
		},
	})
	if err == nil {
		t.Fatal("New() took it")
	}
	for _, want := range []string{"Store is missing", "Owner is empty", "lease 100ms", `"a b": name`, "Destination is missing",
		"concurrency -1", "max_attempts -1", "jitter 2", `"c" is configured twice`} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error does not say %q:\n%v", want, err)
		}
	}
}

func TestNewRefusesATimeoutThatDoesNotFitInTheLease(t *testing.T) {
	_, err := New(Config{Lease: 12 * time.Second, Destinations: []DestinationConfig{{Name: "a", Destination: nowhere{}}}})
	want := "timeout 10s does not fit in the lease of 12s: a delivery may take two thirds of it. " +
		"Set the timeout to at most 8s, or the lease to at least 15s"
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("New() = %v, want %q", err, want)
	}
}

func TestTopicsMatch(t *testing.T) {
	tests := []struct {
		topics Topics
		topic  string
		want   bool
	}{
		{nil, "anything", true},
		{Topics{"a"}, "a", true},
		{Topics{"a"}, "A", false},
		{Topics{"a"}, "ab", false},
		{Topics{"linkostar.*"}, "linkostar.hub", true},
		{Topics{"linkostar.*"}, "linkostar.", true},
		{Topics{"linkostar.*"}, "linkostarx", false},
		{Topics{"*.v1"}, "a.b.v1", true},
		{Topics{"a*b*c"}, "a-b-b-c", true},
		{Topics{"a*b*c"}, "a-c-b", false},
		{Topics{"a*a"}, "a", false},
		{Topics{"*"}, "", true},
		{Topics{"x", "y*"}, "yes", true},
		{Topics{"a_c", "a%"}, "abc", false},
	}
	for _, test := range tests {
		if got := test.topics.Match(test.topic); got != test.want {
			t.Errorf("%q.Match(%q) = %v, want %v", test.topics, test.topic, got, test.want)
		}
	}
}
