package layout

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var namedTest = regexp.MustCompile(`\[(Test\w+)\]\(([^)]+)\)`)

// TestGuaranteesNameTestsThatExist: a promise whose test was renamed or removed is no longer held.
func TestGuaranteesNameTestsThatExist(t *testing.T) {
	text, err := os.ReadFile("../../GUARANTEES.md")
	if err != nil {
		t.Fatal(err)
	}
	found := namedTest.FindAllStringSubmatch(string(text), -1)
	if len(found) < 10 {
		t.Fatalf("GUARANTEES.md names only %d tests", len(found))
	}
	for _, link := range found {
		if !hasTest(t, filepath.Join("../..", link[2]), link[1]) {
			t.Errorf("GUARANTEES.md: there is no %s in %s", link[1], link[2])
		}
	}
}

// hasTest looks for a test in a file, or in the test files of a folder.
func hasTest(t *testing.T, path, name string) bool {
	t.Helper()
	files := []string{path}
	if !strings.HasSuffix(path, ".go") {
		var err error
		if files, err = filepath.Glob(filepath.Join(path, "*_test.go")); err != nil {
			t.Fatal(err)
		}
	}
	for _, file := range files {
		source, err := os.ReadFile(file)
		if err != nil {
			t.Error(err)
			continue
		}
		if strings.Contains(string(source), "func "+name+"(") {
			return true
		}
	}
	return false
}
