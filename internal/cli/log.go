package cli

import (
	"strconv"

	"github.com/spf13/cobra"

	"github.com/pillarbox-dev/pillarbox/internal/config"
	"github.com/pillarbox-dev/pillarbox/ops"
)

func newLog(a *app) *cobra.Command {
	var f ops.LogFilter
	var p pageFlags
	cmd := &cobra.Command{
		Use:   "log",
		Short: "Show what operators did, and why",
		Long: `log shows the operators' log, the newest first: who did what to which delivery or destination, when and why. With --json
each entry has what was there before, and after; for a repair that is the whole payload.`,
		Example: `  pillarbox log --destination suppliers
  pillarbox log --action repair --json | jq '.entries[] | {operator, event_id, before, after}'`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := p.check(); err != nil {
				return err
			}
			return a.withOps(cmd, func(_ *config.Config, o *ops.Ops) error {
				found := ops.LogPage{Entries: []ops.LogEntry{}}
				next, err := p.follow(func(page ops.Page) (int, string, error) {
					got, err := o.Log(cmd.Context(), f, page)
					found.Entries = append(found.Entries, got.Entries...)
					return len(got.Entries), got.Next, err
				})
				if err != nil {
					return err
				}
				found.Next = next
				if p.asJSON {
					return a.printJSON(found)
				}
				a.printf("%s%s", logText(found.Entries), p.goOn("entries", len(found.Entries), found.Next))
				return nil
			})
		},
	}
	cmd.Flags().StringVar(&f.Operator, "operator", "", "`WHO` did it")
	cmd.Flags().StringVar(&f.Action, "action", "", "`WHAT` was done: pause, resume, retry, discard, repair, job …")
	cmd.Flags().StringVar(&f.Destination, "destination", "", "the `NAME` of the destination")
	cmd.Flags().Int64Var(&f.Seq, "seq", 0, "the `NUMBER` of the event")
	p.flags(cmd)
	return cmd
}

func logText(entries []ops.LogEntry) string {
	if len(entries) == 0 {
		return ""
	}
	t := table{}
	t.add("AT", "OPERATOR", "ACTION", "DESTINATION", "EVENT", "REASON")
	for _, e := range entries {
		event := "-"
		if e.Seq != 0 {
			event = strconv.FormatInt(e.Seq, 10)
		}
		t.add(timeText(&e.At), orDash(e.Operator), e.Action, orDash(e.Destination), event, plain(e.Reason))
	}
	return t.String()
}
