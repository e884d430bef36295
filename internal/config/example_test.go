package config

import (
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
)

func TestExampleLoads(t *testing.T) {
	c, err := Parse("pillarbox.yaml", []byte(Example()), noVariables)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := c.Database.URL.Reveal(), "postgres://app@localhost:5432/app"; got != want {
		t.Errorf("database.url = %s, want %s", got, want)
	}
}

// With all its # taken away the example has every key of the configuration, and no other.
func TestExampleHasEveryKey(t *testing.T) {
	whole := regexp.MustCompile(`(?m)^( *)#(\S)`).ReplaceAllString(Example(), "$1$2")
	set := func(name string) (string, bool) {
		if name == "DATABASE_URL" {
			return "", false
		}
		return "value", true
	}
	d := &decoder{file: "whole.yaml", lookup: set, places: map[string]place{}}
	var c Config
	d.value(d.document([]byte(whole)), "", reflect.ValueOf(&c).Elem(), "")
	for _, p := range d.problems {
		t.Errorf("%v", p)
	}
	var missing []string
	for _, key := range keys(reflect.TypeFor[Config](), "") {
		if _, there := d.places[key]; !there {
			missing = append(missing, key)
		}
	}
	if len(missing) > 0 {
		t.Errorf("the example does not mention %s", strings.Join(missing, ", "))
	}
}

// keys lists the paths of a type, with the example's own names where names are free.
func keys(t reflect.Type, path string) (all []string) {
	name := map[string]string{"destinations": "example", "destinations.example.http.endpoints": "acme"}[path]
	switch {
	case t.Kind() == reflect.Pointer:
		return keys(t.Elem(), path)
	case t.Kind() == reflect.Map && name != "":
		return keys(t.Elem(), join(path, name))
	case t.Kind() != reflect.Struct || t == reflect.TypeFor[URL]() || t == reflect.TypeFor[Secret]():
		return nil
	}
	for key, field := range fieldsOf(t) {
		all = append(all, join(path, key))
		all = append(all, keys(field.Type, join(path, key))...)
	}
	slices.Sort(all)
	return all
}

func TestExampleFitsTheScreen(t *testing.T) {
	for i, line := range strings.Split(Example(), "\n") {
		if len([]rune(line)) > 130 {
			t.Errorf("line %d has more than 130 characters", i+1)
		}
	}
}
