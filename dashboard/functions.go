package dashboard

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"html/template"
	"net/url"
	"strings"
	"time"

	"github.com/pillarbox-dev/pillarbox/ops"
)

// functions are what templates may call.
func (d *Dashboard) functions() template.FuncMap {
	assets := d.assets()
	return template.FuncMap{
		"to":    func(path string, parts ...any) string { return d.config.Base + at(path, parts...) },
		"asset": func(name string) string { return assets[name] },
		"when": func(t any) template.HTML {
			switch t := t.(type) {
			case time.Time:
				return timeElement(t, d.now())
			case *time.Time:
				if t != nil {
					return timeElement(*t, d.now())
				}
			}
			return "–"
		},
		"clock":   func(t time.Time) string { return t.UTC().Format("15:04") },
		"about":   func(s ops.Seconds) string { return cmp.Or(coarse(time.Duration(s)), "< 1 s") },
		"age":     func(s ops.Seconds) string { return age(time.Duration(s)) },
		"latency": func(s ops.Seconds) string { return latency(time.Duration(s)) },
		"number":  func(n any) string { return number(toInt(n)) },
		"bytes":   func(n any) string { return bytesText(toInt(n)) },
		"count":   count, "rate": rate, "percent": percent, "short": short, "word": word,
		"dict": dict, "pick": pick,
		"upTo": func(s ops.Seconds) string {
			if s <= 0 {
				return "longer"
			}
			return "≤ " + latency(time.Duration(s))
		},
		"join": strings.Join,
	}
}

// at adds parts to a path, each escaped.
func at(path string, parts ...any) string {
	var b strings.Builder
	b.WriteString(path)
	for _, part := range parts {
		b.WriteString("/" + url.PathEscape(fmt.Sprint(part)))
	}
	return b.String()
}

// assets returns the addresses of the static files, with a hash, so that a browser can keep them until they change.
func (d *Dashboard) assets() map[string]string {
	all := map[string]string{}
	entries, err := staticFiles.ReadDir("static")
	if err != nil {
		panic(err) // the folder is embedded
	}
	for _, entry := range entries {
		text, err := staticFiles.ReadFile("static/" + entry.Name())
		if err != nil {
			panic(err)
		}
		sum := sha256.Sum256(text)
		all[entry.Name()] = d.config.Base + "/static/" + entry.Name() + "?v=" + hex.EncodeToString(sum[:6])
	}
	return all
}

func toInt(n any) int64 {
	switch n := n.(type) {
	case int:
		return int64(n)
	case int64:
		return n
	case uint64:
		return int64(n) // counters of this process
	case float64:
		return int64(n)
	}
	return 0
}

// dict gives a template several values: name, value, name, value …
func dict(pairs ...any) (map[string]any, error) {
	if len(pairs)%2 != 0 {
		return nil, fmt.Errorf("dict has %d arguments, which is no number of pairs", len(pairs))
	}
	m := map[string]any{}
	for i := 0; i < len(pairs); i += 2 {
		name, ok := pairs[i].(string)
		if !ok {
			return nil, fmt.Errorf("dict: %v is no name", pairs[i])
		}
		m[name] = pairs[i+1]
	}
	return m, nil
}
