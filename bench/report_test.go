package main

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"testing"
)

func sampleReport() *report {
	r := &report{}
	for _, sample := range []float64{190_000.4, 150_000, 170_123.6} {
		r.add("pillarbox_per_s", sample)
	}
	r.add("ratio", 12.34567)
	r.want("pillarbox_per_s", atLeast(150_000))
	r.want("ratio", atLeast(15))
	r.want("absent", atLeast(1))
	r.note("events", 1000)
	r.note("settings", `a<"b"`)
	return r
}

func TestReportAsJSON(t *testing.T) {
	var out bytes.Buffer
	if err := sampleReport().writeJSON(&out); err != nil {
		t.Fatal(err)
	}
	var got struct {
		PerSecond *float64 `json:"pillarbox_per_s"`
		Ratio     *float64 `json:"ratio"`
		Events    int      `json:"events"`
		Settings  string   `json:"settings"`
		Missed    []string `json:"missed"`
		Samples   map[string][]float64
	}
	decoder := json.NewDecoder(&out)
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&got); err != nil {
		t.Fatal(err)
	}
	if got.PerSecond == nil || *got.PerSecond != 170_124 {
		t.Errorf("pillarbox_per_s: got %v, want the median 170124", got.PerSecond)
	}
	if got.Ratio == nil || *got.Ratio != 12.346 {
		t.Errorf("ratio: got %v, want 12.346", got.Ratio)
	}
	if want := []string{"ratio"}; !slices.Equal(got.Missed, want) {
		t.Errorf("missed: got %v, want %v", got.Missed, want)
	}
	if want := []float64{190_000, 150_000, 170_124}; !slices.Equal(got.Samples["pillarbox_per_s"], want) {
		t.Errorf("samples: got %v, want %v", got.Samples["pillarbox_per_s"], want)
	}
	if got.Events != 1000 || got.Settings != `a<"b"` {
		t.Errorf("context: got %d and %q", got.Events, got.Settings)
	}
	if decoder.More() {
		t.Error("more than one object was printed")
	}
}

func TestReportWithoutAMiss(t *testing.T) {
	r := &report{}
	r.add("ratio", 16)
	r.want("ratio", atLeast(15))
	var out bytes.Buffer
	if err := r.writeJSON(&out); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(out.String(), `"missed": []`) {
		t.Errorf("want an empty list of what was missed, got %s", &out)
	}
}

func TestReportAsTable(t *testing.T) {
	var out bytes.Buffer
	if err := sampleReport().writeTable(&out); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(out.String(), "\n")
	for i, want := range [][]string{
		{"figure", "median", "rounds", "target"},
		{"pillarbox_per_s", "170,124", "150,000", "..", "190,000", ">=", "150,000", "ok"},
		{"ratio", "12.346", ">=", "15", "missed"},
		nil,
		{"events:", "1000"},
	} {
		if got := strings.Fields(lines[i]); !slices.Equal(got, want) {
			t.Errorf("line %d: got %q, want %q", i, got, want)
		}
	}
	if len(lines[1]) != len(lines[2]) {
		t.Errorf("rows are not aligned:\n%s", &out)
	}
}

func TestFormatNumber(t *testing.T) {
	for _, test := range []struct {
		value float64
		want  string
	}{
		{0, "0"}, {0.0004, "0"}, {1.5, "1.5"}, {99.9994, "99.999"}, {100.4, "100"}, {999.6, "1,000"}, {1234567, "1,234,567"},
		{-1234, "-1,234"}, {-0.25, "-0.25"}, {-100, "-100"},
	} {
		if got := formatNumber(test.value); got != test.want {
			t.Errorf("%v: got %s, want %s", test.value, got, test.want)
		}
	}
}

func TestTarget(t *testing.T) {
	for _, test := range []struct {
		target target
		value  float64
		want   bool
	}{
		{atLeast(15), 15, true}, {atLeast(15), 14.999, false}, {atMost(200), 200, true}, {atMost(200), 200.5, false}, {target{}, -1, true},
	} {
		if got := test.target.met(test.value); got != test.want {
			t.Errorf("%v met by %v: got %v, want %v", test.target, test.value, got, test.want)
		}
	}
}
