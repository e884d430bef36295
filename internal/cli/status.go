package cli

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/pillarbox-dev/pillarbox/internal/config"
	"github.com/pillarbox-dev/pillarbox/ops"
	"github.com/pillarbox-dev/pillarbox/relay"
)

func newStatus(a *app) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show what is pending, failed and quarantined",
		Long: `status shows one line for each destination, out of the database alone: whether a relay runs does not matter. It costs the
same however much is pending: above 5,000 pending a number is an estimate (~), and counting stops at 10,000 (+).

  STATE    running, paused, failing (with the last error), no relay (nobody has the lease, or that of one of its shards),
           not started (no relay has ever worked on it), not configured (a relay once did)
  OLDEST   since when the oldest event that is not delivered could have been
  RATE     published per second, in the last ten seconds
  LAG      numbers of the log above the cursor

The shards of a destination that has several are listed below it all. In its own line stand the lag of the slowest, and all relays
that work on it.`,
		Example: `  pillarbox status
  pillarbox status --json | jq '.destinations[] | select(.quarantined.count > 0)'`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.withOps(cmd, func(c *config.Config, o *ops.Ops) error {
				found, err := o.Status(cmd.Context())
				if err != nil {
					return err
				}
				report := newStatusReport(c, found)
				if asJSON {
					encoder := json.NewEncoder(a.out)
					encoder.SetIndent("", "  ")
					return encoder.Encode(report)
				}
				a.printf("%s", report)
				return nil
			})
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	return cmd
}

// statusReport is the outbox's status beside the configuration.
type statusReport struct {
	At           time.Time     `json:"at"`
	LastSeq      int64         `json:"last_seq"`
	Destinations []statusEntry `json:"destinations"`
}

type statusEntry struct {
	State string `json:"state"`
	ops.DestinationStatus
}

func newStatusReport(c *config.Config, found ops.Status) statusReport {
	r := statusReport{At: found.At, LastSeq: found.LastSeq, Destinations: []statusEntry{}}
	started := map[string]bool{}
	for _, d := range found.Destinations {
		started[d.Destination] = true
		_, configured := c.Destinations[d.Destination]
		r.Destinations = append(r.Destinations, statusEntry{stateOf(d, configured), d})
	}
	for _, name := range c.Names() {
		if !started[name] {
			r.Destinations = append(r.Destinations, statusEntry{"not started",
				ops.DestinationStatus{Destination: name, Topics: c.Destinations[name].Topics}})
		}
	}
	slices.SortFunc(r.Destinations, func(a, b statusEntry) int { return cmp.Compare(a.Destination, b.Destination) })
	return r
}

func stateOf(d ops.DestinationStatus, configured bool) string {
	switch {
	case d.Paused:
		return "paused"
	case d.LeaseOwner == "" && !configured:
		return "not configured"
	case d.Unattended():
		return "no relay"
	case d.FailingSince != nil:
		return "failing"
	}
	return "running"
}

// stateOfShard is the state of one shard of several.
func stateOfShard(s ops.ShardStatus) string {
	switch {
	case s.Paused:
		return "paused"
	case s.LeaseOwner == "":
		return "no relay"
	}
	return "running"
}

// String returns the table, a second one of shards if there are any, and below them what does not fit into a column.
func (r statusReport) String() string {
	t := table{right: []bool{false, false, true, true, true, true, true, true}}
	t.add("DESTINATION", "STATE", "PENDING", "FAILED", "QUARANTINED", "OLDEST", "RATE", "LAG", "RELAY")
	var notes strings.Builder
	for _, d := range r.Destinations {
		if d.State == "not started" {
			t.add(d.Destination, d.State, "-", "-", "-", "-", "-", "-", "-")
			continue
		}
		t.add(d.Destination, d.State, countText(d.Pending), countText(d.Failed), countText(d.Quarantined),
			ageText(time.Duration(d.OldestPendingAge)), rateText(d.RatePerSecond), grouped(d.Lag), cmp.Or(d.LeaseOwner, "-"))
		if d.Paused {
			fmt.Fprintf(&notes, "%s is paused by %s since %s: %s\n", d.Destination, d.PausedBy,
				d.PausedAt.Format(time.RFC3339), d.PausedReason)
		}
		if d.FailingSince != nil {
			fmt.Fprintf(&notes, "%s has been failing for %s, the last time with %s\n", d.Destination,
				ageText(r.At.Sub(*d.FailingSince)), d.LastErrorCode)
		}
	}
	text := t.String()
	if shards := r.shards(); len(shards.rows) > 1 {
		text += "\n" + shards.String()
	}
	if notes.Len() > 0 {
		text += "\n" + notes.String()
	}
	return text
}

// shards returns a line for each shard of the destinations that have several.
func (r statusReport) shards() table {
	t := table{right: []bool{false, false, false, true}}
	t.add("DESTINATION", "SHARD", "STATE", "LAG", "RELAY")
	for _, d := range r.Destinations {
		for _, s := range d.Shards {
			shard := relay.Shard{Number: s.Shard, Of: len(d.Shards)}
			t.add(d.Destination, shard.String(), stateOfShard(s), grouped(s.Lag), cmp.Or(s.LeaseOwner, "-"))
		}
	}
	return t
}

func countText(c ops.Count) string {
	text := grouped(c.N)
	if c.Estimated {
		text = "~" + text
	}
	if c.AtLeast {
		text += "+"
	}
	return text
}

// grouped puts commas between thousands.
func grouped(n int64) string {
	digits := strconv.FormatInt(n, 10)
	for i := len(digits) - 3; i > 0 && digits[i-1] != '-'; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}

func rateText(perSecond float64) string {
	if perSecond < 10 {
		return strconv.FormatFloat(perSecond, 'f', 1, 64) + "/s"
	}
	return grouped(int64(perSecond+0.5)) + "/s"
}

// ageText is a duration in the two largest units that say something.
func ageText(d time.Duration) string {
	const day = 24 * time.Hour
	switch {
	case d <= 0:
		return "-"
	case d < time.Second:
		return fmt.Sprintf("%dms", d.Milliseconds())
	case d < time.Minute:
		return fmt.Sprintf("%ds", d/time.Second)
	case d < time.Hour:
		return fmt.Sprintf("%dm%02ds", d/time.Minute, d%time.Minute/time.Second)
	case d < day:
		return fmt.Sprintf("%dh%02dm", d/time.Hour, d%time.Hour/time.Minute)
	}
	return fmt.Sprintf("%dd%02dh", d/day, d%day/time.Hour)
}
