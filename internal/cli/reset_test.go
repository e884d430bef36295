package cli

import (
	"strings"
	"testing"
	"time"

	"github.com/pillarbox-dev/pillarbox/outbox"
)

// The log is truncated and its numbers begin anew: the relay says so, its advice works, and the new events arrive.
func TestResetCursor(t *testing.T) {
	onBoth(t, func(r *rig) {
		config := r.config("")
		r.enqueue(true, outbox.Event{Topic: "a", Type: "T"}, outbox.Event{Topic: "a", Type: "T"}, outbox.Event{Topic: "a", Type: "T"})
		relay := start(r.t, "run", "-c", config)
		within(r.t, 20*time.Second, "three events", func() bool { return len(r.receiver.arrived()) == 3 })
		if code, _, errOut := runCLI("reset-cursor", "receiver", "-c", config, "--reason", "r"); code != exitFailed || !strings.Contains(errOut, "stop the relays first") {
			r.t.Errorf("with a relay at work: exit status %d, %s, want a refusal", code, errOut)
		}
		relay.stop()

		if r.schema != "" {
			r.exec("truncate %s restart identity", r.table("outbox_event"))
			r.exec("alter sequence %s restart", r.table("outbox_event_seq"))
		} else {
			r.exec("delete from outbox_event")
			r.exec("delete from sqlite_sequence where name = 'outbox_event'")
		}
		ids := r.enqueue(true, outbox.Event{Topic: "a", Type: "T"}, outbox.Event{Topic: "a", Type: "T"})
		relay = start(r.t, "run", "-c", config)
		if code := relay.wait(20 * time.Second); code != exitFailed || !strings.Contains(relay.logged(), "run 'pillarbox reset-cursor receiver --reason …'") {
			r.t.Fatalf("exit status %d and\n%s\nwant 1 and what to do", code, relay.logged())
		}

		if code, _, errOut := runCLI("reset-cursor", "receiver", "-c", config); code != exitUsage || !strings.Contains(errOut, "--reason is missing") {
			r.t.Errorf("without a reason: exit status %d, %s", code, errOut)
		}
		if code, _, errOut := runCLI("reset-cursor", "receiver", "-c", config, "--reason", "r", "--from-seq", "4"); code != exitFailed ||
			!strings.Contains(errOut, "at 1 to 3") {
			r.t.Errorf("beyond the log: exit status %d, %s", code, errOut)
		}
		if code, _, errOut := runCLI("reset-cursor", "nobody", "-c", config, "--reason", "r"); code != exitFailed || !strings.Contains(errOut, "no relay has worked") {
			r.t.Errorf("of nobody: exit status %d, %s", code, errOut)
		}
		out := must(r.t, "reset-cursor", "receiver", "-c", config, "--by", "ann", "--reason", "it was truncated")
		if want := "receiver begins again at 1; it stood at 3, and 3 rows of its ledger are forgotten: start its relays\n"; out != want {
			r.t.Errorf("printed %q, want %q", out, want)
		}
		relay = start(r.t, "run", "-c", config)
		within(r.t, 20*time.Second, "the new events", func() bool {
			got := map[string]bool{}
			for _, a := range r.receiver.arrived() {
				got[a.id] = true
			}
			return got[ids[0]] && got[ids[1]]
		})
		if code := relay.stop(); code != exitOK {
			r.t.Errorf("exit status %d, want 0", code)
		}
		var action, reason string
		if err := r.db.QueryRowContext(r.t.Context(), "select operator || ' ' || action, reason from "+r.table("outbox_operator_action")).
			Scan(&action, &reason); err != nil || action != "ann reset-cursor" || reason != "it was truncated" {
			r.t.Errorf("recorded %s, %s, %v", action, reason, err)
		}
	})
}
