package api

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"

	"github.com/pillarbox-dev/pillarbox/ops"
)

// The schemas have the fields that are sent, and require those that always are.
func TestSchemasFitTheTypes(t *testing.T) {
	document := load(t)
	for name, of := range map[string]reflect.Type{
		"Status": reflect.TypeFor[status](), "DestinationStatus": reflect.TypeFor[ops.DestinationStatus](),
		"ShardStatus": reflect.TypeFor[ops.ShardStatus](),
		"Count":       reflect.TypeFor[ops.Count](), "Delivery": reflect.TypeFor[ops.Delivery](), "Event": reflect.TypeFor[event](),
		"DeliveryPage": reflect.TypeFor[ops.DeliveryPage](), "LogEntry": reflect.TypeFor[ops.LogEntry](),
		"LogPage": reflect.TypeFor[ops.LogPage](), "Job": reflect.TypeFor[ops.Job](), "JobPage": reflect.TypeFor[ops.JobPage](),
		"Estimate": reflect.TypeFor[estimate](), "Filter": reflect.TypeFor[ops.Filter](), "Paused": reflect.TypeFor[paused](),
		"Recent": reflect.TypeFor[ops.Recent](), "Relays": reflect.TypeFor[relays](), "Lease": reflect.TypeFor[lease](),
		"Unit": reflect.TypeFor[unit](), "Endpoint": reflect.TypeFor[endpoint](), "Health": reflect.TypeFor[ops.Health](),
		"TableHealth": reflect.TypeFor[ops.TableHealth](), "Tasks": reflect.TypeFor[tasks](), "Task": reflect.TypeFor[ops.TaskStatus](),
		"Problem": reflect.TypeFor[problem](), "Fault": reflect.TypeFor[fault](),
	} {
		described := document.Components.Schemas[name]
		if described == nil {
			t.Errorf("there is no schema %s", name)
			continue
		}
		fields, required := fieldsOf(of)
		var properties []string
		for property := range described.Value.Properties {
			properties = append(properties, property)
		}
		slices.Sort(properties)
		if !slices.Equal(properties, fields) {
			t.Errorf("%s has the properties\n%q\nand is sent with\n%q", name, properties, fields)
		}
		asked := slices.Sorted(slices.Values(described.Value.Required))
		if !slices.Equal(asked, required) {
			t.Errorf("%s requires\n%q\nand is always sent with\n%q", name, asked, required)
		}
	}
}

func fieldsOf(of reflect.Type) (all, required []string) {
	for _, field := range reflect.VisibleFields(of) {
		name, options, _ := strings.Cut(field.Tag.Get("json"), ",")
		if field.Anonymous || name == "" || name == "-" {
			continue
		}
		all = append(all, name)
		if !strings.Contains(options, "omit") {
			required = append(required, name)
		}
	}
	slices.Sort(all)
	slices.Sort(required)
	return all, required
}

func load(t *testing.T) *openapi3.T {
	t.Helper()
	served, err := readDocument()
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(served)
	if err != nil {
		t.Fatal(err)
	}
	document, err := openapi3.NewLoader().LoadFromData(text)
	if err != nil {
		t.Fatal(err)
	}
	return document
}

// Every operation says what it answers when things go wrong that can always go wrong, and every parameter what it is.
func TestOperationsAreWhole(t *testing.T) {
	for path, item := range load(t).Paths.Map() {
		for method, operation := range item.Operations() {
			wants := []string{"200", "400", "401", "403", "429", "500", "503"}
			if method == "POST" {
				wants = append(wants, "409", "413", "415", "422")
			}
			for _, want := range wants {
				if operation.Responses.Value(want) == nil {
					t.Errorf("%s %s does not describe the answer %s", method, path, want)
				}
			}
			for _, parameter := range operation.Parameters {
				if parameter.Value.Description == "" {
					t.Errorf("%s %s: %s is not described", method, path, parameter.Value.Name)
				}
			}
			if operation.OperationID == "" || operation.Summary == "" || len(operation.Tags) != 1 {
				t.Errorf("%s %s has no operationId, summary or tag", method, path)
			}
		}
	}
}
