package cli

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/pillarbox-dev/pillarbox/internal/config"
	"github.com/pillarbox-dev/pillarbox/ops"
	"github.com/pillarbox-dev/pillarbox/relay"
)

// filterFlags are the flags that say which deliveries, but for the destination.
func filterFlags(flags *pflag.FlagSet, f *ops.Filter, now func() time.Time) {
	flags.Var(&statusFlag{&f.Statuses}, "status", "`STATUS` of the delivery, like FAILED; several with commas, or the flag again")
	flags.StringSliceVar((*[]string)(&f.Topics), "topic", nil, "`PATTERN` of the topic, * for anything; several as with --status")
	flags.StringVar(&f.Key, "key", "", "the partition `KEY`")
	flags.StringVar(&f.AggregateType, "aggregate-type", "", "the `TYPE` of the aggregate")
	flags.StringVar(&f.AggregateID, "aggregate-id", "", "the `ID` of the aggregate")
	flags.StringVar(&f.EventType, "type", "", "the event's `TYPE`")
	flags.StringVar(&f.ErrorCode, "code", "", "the last error's `CODE`, like HTTP_422")
	flags.StringVar(&f.Endpoint, "endpoint", "", "the `ENDPOINT`")
	flags.Var(&timeFlag{&f.Since, now}, "since",
		"created at this `TIME` or later: 2026-05-04T10:00:00Z, 2026-05-04 (UTC), or 2h or 7d ago")
	flags.Var(&timeFlag{&f.Until, now}, "until", "created before this `TIME`")
	flags.Int64Var(&f.FromSeq, "from-seq", 0, "the first `NUMBER` of an event")
	flags.Int64Var(&f.ToSeq, "to-seq", 0, "the last `NUMBER` of an event")
}

// statusFlag gathers statuses; ops checks them.
type statusFlag struct{ all *[]relay.Status }

func (f *statusFlag) Set(text string) error {
	for word := range strings.SplitSeq(text, ",") {
		*f.all = append(*f.all, relay.Status(strings.ToUpper(strings.TrimSpace(word))))
	}
	return nil
}

func (f *statusFlag) String() string { return "" }
func (f *statusFlag) Type() string   { return "status" }

// timeFlag is a moment, or how long ago it was.
type timeFlag struct {
	at  *time.Time
	now func() time.Time
}

func (f *timeFlag) Set(text string) error {
	for _, format := range []string{time.RFC3339, "2006-01-02T15:04", time.DateOnly} {
		if at, err := time.Parse(format, text); err == nil {
			*f.at = at
			return nil
		}
	}
	ago, err := config.ParseDuration(text)
	if err != nil {
		return errors.New("it is no time: write it like 2026-05-04T10:00:00Z or 2026-05-04 (UTC), or like 2h or 7d for so long ago")
	}
	if ago < 0 {
		return fmt.Errorf("%s ago is yet to come: leave the sign out", text)
	}
	*f.at = f.now().Add(-time.Duration(ago))
	return nil
}

func (f *timeFlag) String() string { return "" }
func (f *timeFlag) Type() string   { return "time" }
