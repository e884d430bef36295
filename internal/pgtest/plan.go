package pgtest

import (
	"encoding/json"
	"strings"
	"testing"
)

// CheckPlan reports each node of a plan that reads more than so many rows in all its loops, or reads a table other than along an
// index. The plan is what explain (analyze, format json) has returned.
func CheckPlan(t testing.TB, plan string, rows float64) {
	t.Helper()
	var plans []struct{ Plan planNode }
	if err := json.Unmarshal([]byte(plan), &plans); err != nil {
		t.Fatal(err)
	}
	plans[0].Plan.walk(func(n planNode) {
		read := (n.ActualRows + n.Removed) * n.Loops
		if n.NodeType == "Seq Scan" || strings.Contains(n.NodeType, "Bitmap") || read > rows {
			t.Errorf("%s on %s %s reads %.0f rows, want at most %.0f through an index\n%s", n.NodeType, n.Relation, n.Index, read, rows, plan)
		}
	})
}

type planNode struct {
	NodeType   string  `json:"Node Type"`
	Relation   string  `json:"Relation Name"`
	Index      string  `json:"Index Name"`
	ActualRows float64 `json:"Actual Rows"`
	Loops      float64 `json:"Actual Loops"`
	Removed    float64 `json:"Rows Removed by Filter"`
	Plans      []planNode
}

func (n planNode) walk(visit func(planNode)) {
	visit(n)
	for _, child := range n.Plans {
		child.walk(visit)
	}
}
