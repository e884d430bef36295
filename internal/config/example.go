package config

import _ "embed"

//go:embed pillarbox.yaml
var example string

// Example returns the file that `pillarbox init` writes. It explains every key, once, with its default.
func Example() string { return example }
