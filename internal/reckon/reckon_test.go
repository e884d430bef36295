package reckon

import (
	"maps"
	"strings"
	"testing"
)

// Each event is counted once, as what the three records together say.
func TestReckon(t *testing.T) {
	record := []Written{{"1", "a"}, {"2", "a"}, {"3", "b"}, {"4", "a"}}
	once := func(id, key string) Handled { return Handled{ID: id, Key: key, Times: 1} }
	published := map[string]Held{"1": {Status: "PUBLISHED"}, "2": {Status: "PUBLISHED"}, "3": {Status: "PUBLISHED"}, "4": {Status: "PUBLISHED"}}
	with := func(id string, k Held) map[string]Held {
		ledger := maps.Clone(published)
		ledger[id] = k
		return ledger
	}
	all := []Handled{once("1", "a"), once("3", "b"), once("2", "a"), once("4", "a")}
	for name, tt := range map[string]struct {
		inbox  []Handled
		ledger map[string]Held
		want   Reckoning
	}{
		"all well": {all, published, Reckoning{Delivered: 4}},
		"duplicates": {[]Handled{{ID: "1", Key: "a", Times: 3}, once("3", "b"), once("2", "a"), {ID: "4", Key: "a", Times: 2}}, published,
			Reckoning{Delivered: 4, Duplicates: 3}},
		"published and forgotten":      {all[:3], published, Reckoning{Delivered: 3, Lost: 1}},
		"never heard of":               {all[:3], nil, Reckoning{Delivered: 3, Lost: 1}},
		"pending":                      {all[:3], with("4", Held{Status: "PENDING"}), Reckoning{Delivered: 3, Pending: 1}},
		"under way":                    {all[:3], with("4", Held{Status: "PUBLISHING"}), Reckoning{Delivered: 3, Pending: 1}},
		"failed":                       {all[:3], with("4", Held{Status: "FAILED"}), Reckoning{Delivered: 3, Pending: 1}},
		"quarantined":                  {all[:3], with("4", Held{"QUARANTINED", "HTTP_422"}), Reckoning{Delivered: 3, Quarantined: 1}},
		"quarantined, but it was done": {all, with("4", Held{"QUARANTINED", "EXHAUSTED"}), Reckoning{Delivered: 4}},
		"not yet settled":              {all, with("4", Held{Status: "PENDING"}), Reckoning{Delivered: 4}},
		"from nowhere":                 {append([]Handled{once("0", "a")}, all...), published, Reckoning{Delivered: 4, False: 1}},
		"swapped": {[]Handled{once("2", "a"), once("1", "a"), once("3", "b"), once("4", "a")}, published,
			Reckoning{Delivered: 4, OutOfOrder: 1}},
		"nothing done": {nil, published, Reckoning{Lost: 4}},
	} {
		got := Of(record, tt.inbox, tt.ledger)
		tt.want.Committed = 4
		if got.String() != withCodes(tt.want, got.Codes).String() || got.Pending != tt.want.Pending {
			t.Errorf("%s: got\n%v\nwant\n%v", name, got, tt.want)
		}
		if sum := got.Delivered + got.Quarantined + got.Pending + got.Lost; sum != got.Committed {
			t.Errorf("%s: %d of %d events are counted", name, sum, got.Committed)
		}
		if bad := tt.want.Lost+tt.want.False+tt.want.OutOfOrder > 0; got.Kept() == bad {
			t.Errorf("%s: Kept = %v", name, got.Kept())
		}
	}
}

func withCodes(r Reckoning, codes map[string]int) Reckoning {
	r.Codes = codes
	return r
}

func TestReckoningTellsCodes(t *testing.T) {
	r := Reckoning{Quarantined: 3, Codes: map[string]int{"HTTP_422": 2, "EXHAUSTED": 1}}
	if want := "quarantined         3   of those committed: EXHAUSTED 1, HTTP_422 2\n"; !strings.Contains(r.String(), want) {
		t.Errorf("the reckoning lacks %q:\n%v", want, r)
	}
}
