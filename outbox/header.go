package outbox

import (
	"context"
	"maps"
	"slices"
	"strings"
)

// header is one of the trace headers of a call.
type header struct{ name, value string }

// traceHeaders asks Options.Trace. The last one of a name counts.
func (o *Outbox) traceHeaders(ctx context.Context) []header {
	if o.opts.Trace == nil {
		return nil
	}
	var all []header
	o.opts.Trace(ctx, func(name, value string) {
		if headerNameProblem(name) != nil || o.headerValueProblem(value) != nil {
			return
		}
		all = slices.DeleteFunc(all, func(h header) bool { return strings.EqualFold(h.name, name) })
		all = append(all, header{name, value})
	})
	return all
}

// headersJSON returns an event's headers as they are stored, and as many of the trace headers as the limits allow.
func (o *Outbox) headersJSON(own map[string]string, trace []header) string {
	if len(trace) == 0 {
		return encodeHeaders(own)
	}
	merged, size := maps.Clone(own), 0
	if merged == nil {
		merged = make(map[string]string, len(trace))
	}
	for name, value := range own {
		size += len(name) + len(value)
	}
	for _, h := range trace {
		if len(merged) >= o.opts.MaxHeaders || size+len(h.name)+len(h.value) > o.opts.MaxHeaderBytes || hasHeader(own, h.name) {
			continue
		}
		merged[h.name] = h.value
		size += len(h.name) + len(h.value)
	}
	return encodeHeaders(merged)
}

func hasHeader(headers map[string]string, name string) bool {
	for own := range headers {
		if strings.EqualFold(own, name) {
			return true
		}
	}
	return false
}

// encodeHeaders returns a flat JSON object, in the order of the names. They were checked: a name needs no escape, and a value
// holds no control character but the tab.
func encodeHeaders(headers map[string]string) string {
	if len(headers) == 0 {
		return "{}"
	}
	var room [8]string
	names, size := room[:0], len("{}")
	for name, value := range headers {
		names = append(names, name)
		size += len(name) + len(value) + len(`"":"",`)
	}
	slices.Sort(names)
	var b strings.Builder
	b.Grow(size)
	for i, name := range names {
		b.WriteByte("{,"[min(i, 1)])
		b.WriteByte('"')
		b.WriteString(name)
		b.WriteString(`":"`)
		for _, c := range []byte(headers[name]) {
			switch c {
			case '"', '\\':
				b.WriteByte('\\')
				b.WriteByte(c)
			case '\t':
				b.WriteString(`\t`)
			default:
				b.WriteByte(c)
			}
		}
		b.WriteByte('"')
	}
	b.WriteByte('}')
	return b.String()
}
