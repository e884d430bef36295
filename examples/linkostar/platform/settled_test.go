package platform

import (
	"context"
	"errors"
	"reflect"
	"testing"

	"github.com/pillarbox-dev/pillarbox/outbox"
	"github.com/pillarbox-dev/pillarbox/relay"
)

func TestSyncStatus(t *testing.T) {
	for _, test := range []struct {
		destination string
		status      relay.Status
		code, want  string
	}{
		{Registration, relay.StatusPublished, "", "SYNCED"},
		{Activations, relay.StatusPublished, "", "SENT"},
		{Registration, relay.StatusFailed, "HTTP_503", "FAILED"},
		{Activations, relay.StatusFailed, "TIMEOUT", "FAILED"},
		{Registration, relay.StatusQuarantined, "HTTP_422", "DEAD"},
		{Activations, relay.StatusQuarantined, relay.CodeExhausted, "DEAD"},
		{Activations, relay.StatusQuarantined, CodeBalance, "REJECTED_BALANCE"},
		{Registration, relay.StatusQuarantined, CodeBalance, "DEAD"}, // a hub costs nothing: the table has no such status
		{Registration, relay.StatusPending, "", ""},
		{Registration, relay.StatusPublishing, "", ""},
		{Activations, relay.StatusDiscarded, "", ""},
	} {
		if got := syncStatus(test.destination, test.status, test.code); got != test.want {
			t.Errorf("%s %s %s: got %q, want %q", test.destination, test.status, test.code, got, test.want)
		}
	}
}

// The hook runs the statements of its destination, in both dialects, and none when nothing was decided.
func TestSettled(t *testing.T) {
	s := relay.Settlement{Published: []relay.Receipt{{Seq: 1}}, Rows: []relay.Row{
		{Seq: 2, Status: relay.StatusPending}, {Seq: 3, Status: relay.StatusFailed, ErrorCode: "TIMEOUT"},
	}}
	for _, d := range []outbox.Dialect{outbox.Postgres, outbox.SQLite} {
		q := statementsOf(d)
		hook := Settled(d)
		for destination, want := range map[string][]string{
			Registration: {q.settleHub, `[{"seq":1,"status":"SYNCED","code":null},{"seq":3,"status":"FAILED","code":"TIMEOUT"}]`,
				q.settleDevice, `[{"seq":1,"status":"SYNCED","code":null},{"seq":3,"status":"FAILED","code":"TIMEOUT"}]`},
			Activations: {q.settleActivation, `[{"seq":1,"status":"SENT","code":null},{"seq":3,"status":"FAILED","code":"TIMEOUT"}]`},
			"another":   nil,
		} {
			var got []string
			exec := func(_ context.Context, query string, args ...any) error {
				got = append(got, query, args[0].(string))
				return nil
			}
			if err := hook(t.Context(), exec, destination, s); err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(got, want) {
				t.Errorf("%v %s: got %q, want %q", d, destination, got, want)
			}
		}
		never := func(context.Context, string, ...any) error { return errors.New("called for nothing") }
		if err := hook(t.Context(), never, Registration, relay.Settlement{Rows: s.Rows[:1]}); err != nil {
			t.Error(err)
		}
		broken := errors.New("disk full")
		fails := func(context.Context, string, ...any) error { return broken }
		if err := hook(t.Context(), fails, Registration, s); !errors.Is(err, broken) {
			t.Errorf("got %v, want the statement's error", err)
		}
	}
}
