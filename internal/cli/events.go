package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/spf13/cobra"

	"github.com/pillarbox-dev/pillarbox/internal/config"
	"github.com/pillarbox-dev/pillarbox/ops"
)

func newEvents(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "events",
		Short: "Look at events and their deliveries",
		Example: `  pillarbox events list --status QUARANTINED
  pillarbox events show 4711`,
		Args: noCommand,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newEventsList(a), newEventsShow(a))
	return cmd
}

func newEventsList(a *app) *cobra.Command {
	var f ops.Filter
	var p pageFlags
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List deliveries: which event goes where, and how far it has come",
		Long: `list shows one line for each event and destination, the newest first, out of the database alone: whether a relay runs
does not matter. All that is asked for has to fit.

It costs the database little however much there is, since it looks at a bounded number of rows at a time; when few of them fit,
it goes on looking for a while, and then says how to go on. What retention has moved to the archive is not in it.`,
		Example: `  pillarbox events list --destination suppliers --status QUARANTINED,FAILED --code HTTP_422
  pillarbox events list --topic 'orders.*' --key CASE-1 --since 2h
  pillarbox events list --status QUARANTINED --json | jq -r '.deliveries[].event_id'`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := p.check(); err != nil {
				return err
			}
			return a.withOps(cmd, func(_ *config.Config, o *ops.Ops) error {
				found, err := listDeliveries(cmd.Context(), o, f, p)
				if err != nil {
					return err
				}
				if p.asJSON {
					return a.printJSON(found)
				}
				a.printf("%s%s", deliveriesText(found.Deliveries), p.goOn("deliveries", len(found.Deliveries), found.Next))
				return nil
			})
		},
	}
	cmd.Flags().StringVar(&f.Destination, "destination", "", "the `NAME` of the destination; by default all of them")
	filterFlags(cmd.Flags(), &f, time.Now)
	p.flags(cmd)
	return cmd
}

// pageFlags say how much of a list.
type pageFlags struct {
	limit  int
	page   ops.Page
	asJSON bool
}

func (p *pageFlags) flags(cmd *cobra.Command) {
	cmd.Flags().IntVar(&p.limit, "limit", 50, "how many at most")
	cmd.Flags().StringVar(&p.page.After, "after", "", "go on where a list has ended: the `PLACE` that it named")
	cmd.Flags().BoolVar(&p.page.OldestFirst, "oldest-first", false, "the oldest first")
	cmd.Flags().BoolVar(&p.asJSON, "json", false, "print one JSON object")
}

// maxList is how much of a list one command prints.
const maxList = 100_000

func (p *pageFlags) check() error {
	if p.limit < 1 || p.limit > maxList {
		return usageError{fmt.Errorf("--limit must be a number from 1 to %d, and is %d", maxList, p.limit)}
	}
	return nil
}

// goOn is the line below a list.
func (p *pageFlags) goOn(what string, n int, next string) string {
	switch {
	case next != "":
		return fmt.Sprintf("\nThere may be more: the same with --after %s\n", next)
	case n == 0:
		return fmt.Sprintf("no %s fit\n", what)
	}
	return ""
}

// maxPages is how many pages are looked through for what fits.
const maxPages = 200

// follow reads pages until there are enough entries, or no more. read returns how many it has got, and where the list goes on.
func (p *pageFlags) follow(read func(ops.Page) (n int, next string, err error)) (next string, err error) {
	page, left := p.page, p.limit
	for pages := 0; left > 0 && pages < maxPages; pages++ {
		page.Limit = min(left, ops.MaxPage)
		n, next, err := read(page)
		if err != nil || next == "" {
			return "", err
		}
		page.After = next
		left -= n
	}
	return page.After, nil
}

func listDeliveries(ctx context.Context, o *ops.Ops, f ops.Filter, p pageFlags) (ops.DeliveryPage, error) {
	found := ops.DeliveryPage{Deliveries: []ops.Delivery{}}
	next, err := p.follow(func(page ops.Page) (int, string, error) {
		got, err := o.List(ctx, f, page)
		found.Deliveries = append(found.Deliveries, got.Deliveries...)
		return len(got.Deliveries), got.Next, err
	})
	found.Next = next
	return found, err
}

func deliveriesText(all []ops.Delivery) string {
	if len(all) == 0 {
		return ""
	}
	t := table{right: []bool{true, false, false, true}}
	t.add("SEQ", "DESTINATION", "STATUS", "ATTEMPTS", "ERROR", "CREATED", "TOPIC", "TYPE", "KEY", "EVENT")
	for _, d := range all {
		t.add(strconv.FormatInt(d.Seq, 10), d.Destination, string(d.Status), strconv.Itoa(d.Attempts), orDash(d.ErrorCode),
			timeText(&d.CreatedAt), orDash(d.Topic), orDash(d.EventType), orDash(d.Key), orDash(d.EventID))
	}
	return t.String()
}

// orDash is a text in a table.
func orDash(text string) string { return cmp.Or(clipped(plain(text)), "-") }

// clipped leaves room for the other columns.
func clipped(text string) string {
	const most = 60
	runes := []rune(text)
	if len(runes) <= most {
		return text
	}
	return string(runes[:most-1]) + "…"
}

// plain writes out what a terminal would obey: what producers and receivers say is printed, not done.
func plain(text string) string {
	if strings.IndexFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }) < 0 {
		return text
	}
	var b strings.Builder
	for _, r := range text {
		switch {
		case unicode.IsPrint(r):
			b.WriteRune(r)
		case r > 0xffff:
			fmt.Fprintf(&b, `\U%08x`, r)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	return b.String()
}

func timeText(t *time.Time) string {
	if t == nil || t.IsZero() {
		return "-"
	}
	return t.UTC().Format(time.RFC3339)
}

func (a *app) printJSON(value any) error {
	encoder := json.NewEncoder(a.out)
	encoder.SetIndent("", "  ")
	encoder.SetEscapeHTML(false)
	return encoder.Encode(value)
}
