package api

import (
	_ "embed"
	"fmt"

	"go.yaml.in/yaml/v3"
)

//go:embed openapi.yaml
var openapi []byte

// document serves the description of the API.
func (a *api) document(c *call) (any, error) {
	if err := c.query().done(); err != nil {
		return nil, err
	}
	return readDocument()
}

func readDocument() (document map[string]any, err error) {
	if err := yaml.Unmarshal(openapi, &document); err != nil {
		return nil, fmt.Errorf("read the description of the API: %w", err)
	}
	return document, nil
}
