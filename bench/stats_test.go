package main

import (
	"math"
	"testing"
	"time"
)

func TestPercentile(t *testing.T) {
	hundred := make([]time.Duration, 100)
	for i := range hundred {
		hundred[i] = time.Duration(i + 1)
	}
	for _, test := range []struct {
		name   string
		sorted []time.Duration
		p      float64
		want   time.Duration
	}{
		{"none", nil, 0.5, 0},
		{"one", []time.Duration{7}, 0.99, 7},
		{"least", hundred, 0, 1},
		{"half", hundred, 0.5, 50},
		{"99 of 100", hundred, 0.99, 99},
		{"just above a rank", hundred, 0.991, 100},
		{"greatest", hundred, 1, 100},
		{"half of three", []time.Duration{1, 2, 30}, 0.5, 2},
	} {
		if got := percentile(test.sorted, test.p); got != test.want {
			t.Errorf("%s: got %d, want %d", test.name, got, test.want)
		}
	}
}

func TestMedian(t *testing.T) {
	for _, test := range []struct {
		values []float64
		want   float64
	}{
		{[]float64{3}, 3},
		{[]float64{9, 1, 5}, 5},
		{[]float64{4, 1, 2, 100}, 3},
	} {
		if got := median(test.values); got != test.want {
			t.Errorf("median(%v): got %v, want %v", test.values, got, test.want)
		}
	}
	if got := median(nil); !math.IsNaN(got) {
		t.Errorf("median of nothing: got %v, want NaN", got)
	}
	values := []float64{2, 1}
	median(values)
	if values[0] != 2 {
		t.Error("median sorted its caller's values")
	}
}
