package cli

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/pillarbox-dev/pillarbox/ops"
	"github.com/pillarbox-dev/pillarbox/outbox"
)

// What is quarantined is retried, what is published is replayed, and what is old goes, by commands and with a relay that runs.
func TestJobsAndRetention(t *testing.T) {
	onBoth(t, func(r *rig) {
		config := r.config("    retry: {max_attempts: 1}\nretention: {every: 1s, rules: [{topics: [old], after: 1h, archive: true}]}\n")
		r.receiver.answers(422)
		for range 5 {
			r.enqueue(true, outbox.Event{Topic: "orders", Key: "k", Type: "T"})
		}
		relay := start(r.t, "run", "-c", config)
		count := func(query string) (n int) {
			if err := r.db.QueryRowContext(r.t.Context(), query).Scan(&n); err != nil {
				r.t.Fatal(err)
			}
			return n
		}
		quarantined := "select count(*) from " + r.table("outbox_delivery") + " where status = 'QUARANTINED'"
		within(r.t, 20*time.Second, "five quarantined", func() bool { return count(quarantined) == 5 })

		r.receiver.answers(204)
		if out := must(r.t, "jobs", "list", "-c", config); out != "there are no jobs\n" {
			r.t.Errorf("printed %q, want that there are none", out)
		}
		dry := must(r.t, "jobs", "start", "receiver", "-c", config, "--kind", "retry", "--code", "HTTP_422", "--dry-run")
		if dry != "5 deliveries would be set going again\n" {
			r.t.Errorf("printed %q, want what it would be", dry)
		}
		out := must(r.t, "jobs", "start", "receiver", "-c", config, "--kind", "retry", "--code", "HTTP_422", "--reason", "mended",
			"--wait")
		if !strings.HasPrefix(out, "job 1 has started: retry to receiver, from number 1 to 5, 500 a second at most\n") ||
			!strings.HasSuffix(out, "job 1 is DONE: 100%, 5 affected, 0 skipped\n") {
			r.t.Errorf("printed %q", out)
		}
		within(r.t, 20*time.Second, "all to arrive", func() bool { return len(r.receiver.arrived()) == 10 })
		published := "select count(*) from " + r.table("outbox_delivery") + " where status = 'PUBLISHED'"
		within(r.t, 20*time.Second, "all to be published", func() bool { return count(published) == 5 })
		must(r.t, "replay", "receiver", "-c", config, "--from-seq", "4", "--reason", "they lost a disk", "--wait")
		within(r.t, 20*time.Second, "two once more", func() bool { return len(r.receiver.arrived()) == 12 })

		var page ops.JobPage
		if err := json.Unmarshal([]byte(must(r.t, "jobs", "list", "-c", config, "--json")), &page); err != nil || len(page.Jobs) != 2 ||
			page.Jobs[0].Kind != ops.JobReplay || page.Jobs[0].Affected != 2 {
			r.t.Errorf("jobs = %+v, %v, want the replay of two first", page, err)
		}
		shown := must(r.t, "jobs", "show", "2", "-c", config)
		for _, want := range []string{"state     DONE\n", "reason    they lost a disk\n", "affected  2\n",
			"done      100%, at number 5 of 4 to 5\n"} {
			if !strings.Contains(shown, want) {
				r.t.Errorf("printed\n%s\nwant %q in it", shown, want)
			}
		}

		r.enqueue(true, outbox.Event{Topic: "old", Type: "T"})
		within(r.t, 20*time.Second, "one more", func() bool { return count(published) == 6 })
		hours := "created_at - interval '2 hours'"
		if r.schema == "" {
			hours = "created_at - 7200000000"
		}
		r.exec("update %s set created_at = %s", r.table("outbox_event"), hours)
		within(r.t, 20*time.Second, "retention", func() bool { return count("select count(*) from "+r.table("outbox_event_archive")) == 1 })
		within(r.t, 20*time.Second, "the log to tell", func() bool {
			lines := relay.lines("retention has taken events away")
			return len(lines) == 1 && lines[0]["archived"] == 1.0
		})
		if code := relay.stop(); code != exitOK {
			r.t.Errorf("exit status %d, want 0", code)
		}
		config = r.config("retention: {rules: [{after: 1h}]}\n")
		if out := must(r.t, "retention", "-c", config, "--dry-run"); !strings.HasPrefix(out, "5 events would be deleted, 0 moved") {
			r.t.Errorf("printed %q, want 5", out)
		}
		var report ops.RetentionReport
		if err := json.Unmarshal([]byte(must(r.t, "retention", "-c", config, "--json")), &report); err != nil || report.Events != 5 {
			r.t.Errorf("report = %+v, %v, want 5", report, err)
		}
	})
}

// A job is steered by its version, and needs no relay to be.
func TestJobsSteer(t *testing.T) {
	file := quarantine(t)
	must(t, "jobs", "start", "suppliers", "-c", file, "--kind", "retry", "--reason", "x")
	if out := must(t, "jobs", "pause", "1", "-c", file); out != "job 1 is PAUSED: 0%, 0 affected, 0 skipped\n" {
		t.Errorf("printed %q", out)
	}
	code, _, errOut := runCLI("jobs", "cancel", "1", "-c", file, "--if-version", "1")
	if code != exitFailed || !strings.Contains(errOut, "it is PAUSED now") {
		t.Errorf("exit status %d, %q; want that it has changed", code, errOut)
	}
	must(t, "jobs", "resume", "1", "-c", file, "--if-version", "2")
	must(t, "jobs", "cancel", "1", "-c", file)
	code, out, _ := runCLI("jobs", "show", "1", "-c", file, "--wait")
	if code != exitFailed || out != "job 1 is CANCELLED: 0%, 0 affected, 0 skipped\n" {
		t.Errorf("exit status %d, %q; want 1 for what was not done", code, out)
	}
}

func TestJobsRefuse(t *testing.T) {
	file := quarantine(t)
	for _, c := range []struct {
		line, want string
		code       int
	}{
		{"jobs start suppliers --reason x", "--kind is missing", exitUsage},
		{"jobs show seven", `"seven" is no number of a job`, exitUsage},
		{"jobs strat", `did you mean "start"?`, exitUsage},
		{"jobs show 7", "not found", exitFailed},
		{"replay nobody --reason x", "check its name with `pillarbox status`", exitFailed},
		{"replay suppliers --rate 0.5", "invalid argument", exitUsage},
		{"replay suppliers --status FAILED --rate 1000000", "the rate is 1000000 per second", exitFailed},
		{"replay suppliers --status FAILED --rate 1000000", "a replay does not touch what is FAILED", exitFailed},
		{"replay suppliers --status FAILED --rate 1000000", "the reason is missing", exitFailed},
		{"retention", "add retention: {rules: [{after: 30d}]}", exitFailed},
	} {
		code, out, errOut := runCLI(append(strings.Fields(c.line), "-c", file)...)
		if code != c.code || out != "" || !strings.Contains(errOut, c.want) {
			t.Errorf("pillarbox %s: exit status %d, %q, %q\nwant %d and: %s", c.line, code, out, errOut, c.code, c.want)
		}
	}
}
