package cli

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// A destination is divided anew, 1 → 3 → 2, between relays that work on it: every event arrives once, in the order of its key.
func TestReshard(t *testing.T) {
	onBoth(t, func(r *rig) {
		if r.schema == "" {
			r.resharded("receiver", "2", "SQLite has one writer")
			return
		}
		p := &producer{rig: r, committed: map[string]bool{}, rolledBack: map[string]bool{}, keys: map[string][]string{}}
		p.produce(60)
		one := start(r.t, "run", "-c", r.config(""))
		within(r.t, 20*time.Second, "the first events", func() bool { return r.receiver.distinct() > 20 })
		r.resharded("receiver", "3", "stop the relays first")
		one.stop()

		three := r.config("    shards: 3\n")
		relays := []*program{start(r.t, "run", "-c", three), start(r.t, "run", "-c", three)}
		for _, relay := range relays {
			within(r.t, 20*time.Second, "what to do", func() bool {
				lines := relay.lines("the relay cannot work")
				return len(lines) > 0 && strings.Contains(fmt.Sprint(lines[0]["error"]), "run 'pillarbox reshard receiver --shards 3 --reason …'")
			})
		}
		if code, out, _ := runCLI("check", "-c", three); code != exitFailed ||
			!strings.Contains(out, "the number of shards of receiver is 1 in the database and 3 in the configuration") {
			r.t.Errorf("check: exit status %d\n%s\nwant 1 and the two numbers", code, out)
		}
		p.produce(60)
		before := r.receiver.distinct()
		out := must(r.t, "reshard", "receiver", "-c", three, "--by", "ann", "--reason", "more than one can carry")
		if want := "receiver has 3 shards now, and had 1; all begin at "; !strings.HasPrefix(out, want) ||
			!strings.HasSuffix(out, "and the fastest was 0 ahead: start its relays with shards: 3\n") {
			r.t.Errorf("printed %q, want %q …", out, want)
		}
		r.worked(3)
		for _, relay := range relays {
			relay.staysReady()
		}
		if status := must(r.t, "status", "-c", three); strings.Count(status, "\nreceiver     ") != 4 || !strings.Contains(status, "2 of 3  running") {
			r.t.Errorf("status shows\n%s\nwant a line of the destination and one for each shard", status)
		}
		p.produce(60)
		within(r.t, 20*time.Second, "events of the shards", func() bool { return r.receiver.distinct() > before+20 })
		for _, relay := range relays {
			relay.stop()
		}

		p.produce(60)
		r.resharded("receiver", "3", "the number of its shards is 3 already")
		r.resharded("receiver", "65", "a destination has 1 to 64 shards, not 65")
		r.resharded("nobody", "2", "no relay has worked")
		must(r.t, "reshard", "receiver", "-c", three, "--shards", "2", "--reason", "fewer will do")
		two := start(r.t, "run", "-c", r.config("    shards: 2\n"))
		r.worked(2)
		within(r.t, 60*time.Second, "every committed event", func() bool { return r.receiver.distinct() >= len(p.committed) })
		if code := two.stop(); code != exitOK {
			r.t.Errorf("exit status %d, want 0", code)
		}
		p.judge(r.receiver.arrived(), nil, time.Now())
		log := must(r.t, "log", "-c", three, "--action", "reshard", "--json")
		for _, want := range []string{`"ann"`, `"more than one can carry"`, `"fewer will do"`, `"shards": 1`, `"from": 3`} {
			if !strings.Contains(log, want) {
				r.t.Errorf("the operators' log lacks %s:\n%s", want, log)
			}
		}
	})
}

// staysReady waits until it is ready, and sees that it stays so for longer than a lease.
func (p *program) staysReady() {
	p.t.Helper()
	var problems string
	ready := func() bool {
		code, body := p.get("/readyz")
		problems = body
		return code == 200
	}
	within(p.t, 20*time.Second, "the relay to be ready", ready)
	for end := time.Now().Add(3 * time.Second); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if !ready() {
			p.t.Fatalf("/readyz says %q after it was ready", problems)
		}
	}
}

// resharded tries to divide a destination, and is refused.
func (r *rig) resharded(destination, shards, refusal string) {
	r.t.Helper()
	code, out, errOut := runCLI("reshard", destination, "-c", r.config(""), "--shards", shards, "--reason", "r")
	if code != exitFailed || out != "" || !strings.Contains(errOut, refusal) {
		r.t.Errorf("%s in %s shards: exit status %d, %s%s, want 1 and %s", destination, shards, code, out, errOut, refusal)
	}
}

// worked waits until relays work on all the shards.
func (r *rig) worked(shards int) {
	r.t.Helper()
	within(r.t, 30*time.Second, fmt.Sprintf("relays that work on %d shards", shards), func() bool {
		var have int
		query := "select count(*) from " + r.table("outbox_cursor") + " where lease_owner is not null and lease_expires_at > clock_timestamp()"
		if err := r.db.QueryRowContext(r.t.Context(), query).Scan(&have); err != nil {
			r.t.Fatal(err)
		}
		return have == shards
	})
}

// Without --shards the configuration says into how many, which it cannot of a destination that is not in it.
func TestReshardOfNobody(t *testing.T) {
	onBoth(t, func(r *rig) {
		code, _, errOut := runCLI("reshard", "nobody", "-c", r.config(""), "--reason", "r")
		if want := "nobody is not in the configuration: say into how many shards with --shards"; code != exitUsage || !strings.Contains(errOut, want) {
			r.t.Errorf("exit status %d, %s, want 2 and %s", code, errOut, want)
		}
	})
}
