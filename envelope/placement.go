package envelope

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/pillarbox-dev/pillarbox/envelope/internal/jsontext"
	"github.com/pillarbox-dev/pillarbox/relay"
)

// placed is a column, or a header of the event, that goes along under another name.
type placed struct {
	column
	header string // the event's header; "": the column
	digits bool   // the header's text is a number
	alias  string
}

// headerColumn begins the name of a header of the event where a column is asked for.
const headerColumn = "headers."

// parsePlacement reads Debezium's syntax: field:placement or field:placement:alias, separated by commas.
func parsePlacement(list string) (headers, members []placed, problems []error) {
	if strings.TrimSpace(list) == "" {
		return nil, nil, nil
	}
	wrong := func(entry, hint string) {
		problems = append(problems, fmt.Errorf("debezium.placement: %q: %s", entry, hint))
	}
	taken := map[string]bool{"payload": true}
	for _, entry := range strings.Split(list, ",") {
		entry = strings.TrimSpace(entry)
		parts := strings.Split(entry, ":")
		if len(parts) != 2 && len(parts) != 3 {
			wrong(entry, "write column:header or column:envelope, and :name after it for another name")
			continue
		}
		p := placed{alias: parts[len(parts)-1]}
		if len(parts) == 2 {
			p.alias = parts[0]
		}
		if p.alias == "" {
			wrong(entry, "the name at the end is empty")
		}
		if !p.find(parts[0]) {
			wrong(entry, "there is no such column: choose one of "+strings.Join(columnNames(false),
				", ")+", headers.NAME or number(headers.NAME)")
		}
		switch strings.ToLower(parts[1]) {
		case "header":
			headers = append(headers, p)
		case "envelope":
			if taken[p.alias] {
				wrong(entry, "the value has a member of that name already: give it another one")
			}
			taken[p.alias] = true
			members = append(members, p)
		default:
			wrong(entry, "it goes to header or to envelope")
		}
	}
	return headers, members, problems
}

// find tells whether there is such a column, or whether it could be a header of an event.
func (p *placed) find(name string) (found bool) {
	inner, digits := strings.CutPrefix(name, "number(")
	if digits {
		inner, p.digits = strings.CutSuffix(inner, ")")
	}
	if header, is := strings.CutPrefix(inner, headerColumn); is && header != "" && p.digits == digits {
		p.header = header
		return true
	}
	p.column, found = findColumn(name)
	return found
}

// bytes returns what stands in a header; nil for null.
func (p *placed) bytes(e *relay.Event, own map[string]string) []byte {
	if p.header == "" {
		return []byte(p.string(e))
	}
	if value, there := own[p.header]; there {
		return []byte(value)
	}
	return nil
}

// appendJSON appends what stands in the value.
func (p *placed) appendJSON(dst []byte, e *relay.Event, own map[string]string) ([]byte, error) {
	switch value, there := own[p.header]; {
	case p.header == "" && p.number != nil:
		return strconv.AppendInt(dst, p.number(e), 10), nil
	case p.header == "":
		return jsontext.AppendStringPairs(dst, p.string(e)), nil
	case !there:
		return append(dst, "null"...), nil
	case !p.digits:
		return jsontext.AppendStringPairs(dst, value), nil
	case isNumber(value):
		return append(dst, value...), nil
	}
	return nil, invalid(repairHeaders, "the header %q is not a number", p.header)
}

// isNumber tells whether a text is a JSON number and nothing else.
func isNumber(text string) bool {
	return text != "" && (text[0] == '-' || text[0] >= '0' && text[0] <= '9') && !jsontext.IsSpace(text[len(text)-1]) &&
		jsontext.Check([]byte(text)) == nil
}
