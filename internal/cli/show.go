package cli

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/pillarbox-dev/pillarbox/internal/config"
	"github.com/pillarbox-dev/pillarbox/ops"
)

func newEventsShow(a *app) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "show SEQ|EVENT_ID",
		Short: "Show one event: payload, headers, deliveries, and what operators did",
		Long: `show prints all that is known of an event, by its number or by its id, also when retention has moved it to the archive.

The payload is printed with line breaks of its own, its numbers and texts as the producer wrote them. What is not JSON comes in
Base64 with --json. VERSION is what 'retry', 'discard' and 'repair' take as --if-version.`,
		Example: `  pillarbox events show 4711
  pillarbox events show 0190163d-8694-739b-aea5-966c26f8ad91 --json | jq .payload`,
		Args: oneArg("the number or the id of an event"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withOps(cmd, func(_ *config.Config, o *ops.Ops) error {
				e, err := showEvent(cmd.Context(), o, args[0])
				if err != nil {
					return err
				}
				if asJSON {
					return a.printJSON(e)
				}
				a.printf("%s", eventText(e))
				return nil
			})
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	return cmd
}

// showEvent takes a word for a number if it can be one, and for an id otherwise, or when there is no such number.
func showEvent(ctx context.Context, o *ops.Ops, word string) (ops.EventDetail, error) {
	seq, err := strconv.ParseInt(word, 10, 64)
	if err == nil && seq > 0 {
		e, err := o.Show(ctx, ops.EventRef{Seq: seq})
		if !errors.Is(err, ops.ErrNotFound) {
			return e, err
		}
	}
	e, err := o.Show(ctx, ops.EventRef{EventID: word})
	if errors.Is(err, ops.ErrNotFound) {
		return e, fmt.Errorf("%w: it is neither in the log nor in the archive", err)
	}
	return e, err
}

func eventText(e ops.EventDetail) string {
	var b strings.Builder
	fmt.Fprintf(&b, "event %d  %s\n", e.Seq, plain(e.EventID))
	if e.Archived {
		b.WriteString("  archived\n")
	}
	line := func(name, text string) {
		if text != "" {
			fmt.Fprintf(&b, "  %-10s %s\n", name, plain(text))
		}
	}
	line("topic", e.Topic)
	line("key", e.Key)
	line("type", fmt.Sprintf("%s, version %d", e.EventType, e.EventVersion))
	if e.AggregateType != "" || e.AggregateID != "" {
		line("aggregate", fmt.Sprintf("%s %s, version %d", e.AggregateType, e.AggregateID, e.AggregateVersion))
	}
	line("schema", e.SchemaRef)
	line("dedup key", e.DedupKey)
	line("created", timeText(&e.CreatedAt))
	if e.AvailableAt != nil {
		line("available", timeText(e.AvailableAt))
	}
	b.WriteString("\nheaders\n" + headersText(e.Headers))
	b.WriteString("\npayload\n" + payloadText(e))
	b.WriteString("\ndeliveries\n" + deliveryRows(e.Deliveries))
	if len(e.History) > 0 {
		b.WriteString("\nhistory\n" + inset(logText(e.History)))
	}
	return b.String()
}

func headersText(headers json.RawMessage) string {
	var all map[string]string
	if err := json.Unmarshal(headers, &all); err != nil {
		return "  " + plain(string(headers)) + "\n"
	}
	if len(all) == 0 {
		return "  none\n"
	}
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(all)) {
		fmt.Fprintf(&b, "  %s: %s\n", plain(name), plain(all[name]))
	}
	return b.String()
}

// shownBytes is how much of a payload that is not JSON is printed.
const shownBytes = 512

func payloadText(e ops.EventDetail) string {
	switch {
	case e.Payload != nil:
		var pretty bytes.Buffer
		if err := json.Indent(&pretty, e.Payload, "", "  "); err != nil {
			return "  " + plain(string(e.Payload)) + "\n"
		}
		return inset(pretty.String())
	case e.PayloadBytes == nil:
		return "  none: a tombstone\n"
	}
	text := fmt.Sprintf("  %s bytes that are not JSON\n", grouped(int64(len(e.PayloadBytes))))
	text += inset(hex.Dump(e.PayloadBytes[:min(len(e.PayloadBytes), shownBytes)]))
	if len(e.PayloadBytes) > shownBytes {
		text += "  …: all of it with --json, in Base64\n"
	}
	return text
}

// inset moves lines two places to the right, and ends the last one.
func inset(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		b.WriteString("  " + plain(strings.TrimSuffix(line, "\n")) + "\n")
	}
	return b.String()
}

func deliveryRows(all []ops.Delivery) string {
	if len(all) == 0 {
		return "  none: no destination wants it\n"
	}
	t := table{right: []bool{false, false, true}}
	t.add("DESTINATION", "STATUS", "ATTEMPTS", "LAST ATTEMPT", "NEXT ATTEMPT", "PUBLISHED", "RECEIPT", "VERSION")
	var notes strings.Builder
	for _, d := range all {
		t.add(d.Destination, string(d.Status), strconv.Itoa(d.Attempts), timeText(d.LastAttemptAt), timeText(d.NextAttemptAt),
			timeText(d.PublishedAt), orDash(d.Receipt), orDash(d.Version))
		if d.ErrorCode != "" {
			fmt.Fprintf(&notes, "  %s: %s %s\n", d.Destination, plain(d.ErrorCode), plain(d.ErrorMessage))
		}
		if d.LockedBy != "" {
			fmt.Fprintf(&notes, "  %s: under way at %s since %s\n", d.Destination, plain(d.LockedBy), timeText(d.LockedAt))
		}
	}
	return inset(t.String()) + notes.String()
}
