package ops

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/pillarbox-dev/pillarbox/relay"
)

// defaultPage is how many entries a page has when nobody says.
const defaultPage = 50

// limit is how many entries the page has.
func (p Page) limit() int {
	if p.Limit == 0 {
		return defaultPage
	}
	return p.Limit
}

// direction is the word for it in SQL.
func (p Page) direction() string {
	if p.OldestFirst {
		return "asc"
	}
	return "desc"
}

func (p Page) problems() (problems []error) {
	if p.Limit < 0 || p.Limit > MaxPage {
		problems = append(problems, fmt.Errorf("a page cannot have %d entries: ask for 1 to %d, or 0 for %d",
			p.Limit, MaxPage, defaultPage))
	}
	return problems
}

// statuses are all there are.
func statuses() []relay.Status {
	return []relay.Status{relay.StatusPending, relay.StatusPublishing, relay.StatusPublished, relay.StatusFailed,
		relay.StatusQuarantined, relay.StatusDiscarded}
}

// MaxTopics is how many patterns a filter takes.
const MaxTopics = 100

func (f Filter) problems() (problems []error) {
	bad := func(format string, args ...any) { problems = append(problems, fmt.Errorf(format, args...)) }
	for _, s := range f.Statuses {
		if !slices.Contains(statuses(), s) {
			bad("there is no status %q: use PENDING, PUBLISHING, PUBLISHED, FAILED, QUARANTINED or DISCARDED", s)
		}
	}
	if len(f.Topics) > MaxTopics {
		bad("%d patterns of topics are more than %d: use *, or several lists", len(f.Topics), MaxTopics)
	}
	if slices.Contains(f.Topics, "") {
		bad("a pattern of topics is empty: leave it out, or use *")
	}
	if f.FromSeq < 0 || f.ToSeq < 0 {
		bad("the numbers of events begin with 1: from %d to %d is no stretch of them", f.FromSeq, f.ToSeq)
	} else if f.ToSeq != 0 && f.FromSeq > f.ToSeq {
		bad("nothing lies from number %d to %d: turn them round", f.FromSeq, f.ToSeq)
	}
	if !f.Since.IsZero() && !f.Until.IsZero() && !f.Since.Before(f.Until) {
		bad("nothing lies from %s to before %s: turn them round", f.Since.UTC().Format(timeFormat), f.Until.UTC().Format(timeFormat))
	}
	return problems
}

const timeFormat = "2006-01-02T15:04:05.999999Z07:00"

// refuse makes one error of all problems; nil when there are none.
func refuse(problems []error) error {
	if len(problems) == 0 {
		return nil
	}
	return &RefusedError{Why: errors.Join(problems...).Error()}
}

// place is where a list goes on: with the first entry that was not looked at. Entries are in the order of their numbers, and
// those of one number in the order of their destinations.
type place struct {
	Seq         int64  `json:"s"`
	Destination string `json:"d,omitempty"`
	// List tells of which list it is a place: going on with another filter would leave entries out without a word.
	List string `json:"l"`
}

// after reads Page.After. found is false at the beginning.
func (p Page) after(list string) (at place, found bool, err error) {
	if p.After == "" {
		return place{}, false, nil
	}
	text, err := base64.RawURLEncoding.DecodeString(p.After)
	if err == nil {
		err = json.Unmarshal(text, &at)
	}
	if err != nil || at.List != list {
		return place{}, false, ErrBadPage
	}
	return at, true, nil
}

// String is what Page.After will be.
func (at place) String() string {
	text, _ := json.Marshal(at) // three plain fields
	return base64.RawURLEncoding.EncodeToString(text)
}

// listName tells lists apart: by what they hold and by their order.
func listName(kind string, filter any, p Page) (string, error) {
	text, err := json.Marshal(filter)
	if err != nil {
		return "", fmt.Errorf("name the list: %w", err)
	}
	sum := sha256.Sum256(slices.Concat([]byte(kind+" "+p.direction()+" "), text))
	return hex.EncodeToString(sum[:6]), nil
}

// jsonList is a list of numbers or texts as a statement takes it: [] when there is nothing in it.
func jsonList[T ~int64 | ~string](items []T) string {
	if len(items) == 0 {
		return "[]"
	}
	text, _ := jsonText(items) // of such items there is one always
	return text
}
