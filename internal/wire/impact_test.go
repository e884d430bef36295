package wire

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/pillarbox-dev/pillarbox/dashboard"
	"github.com/pillarbox-dev/pillarbox/internal/kafkatest"
	"github.com/pillarbox-dev/pillarbox/internal/telemetry"
	"github.com/pillarbox-dev/pillarbox/ops"
	"github.com/pillarbox-dev/pillarbox/relay"
)

// TestImpact: a group that has come half the way, dead letters, an inbox, and a consumer whose cluster is away and hides nobody.
func TestImpact(t *testing.T) {
	cluster := kafkatest.Shared(t)
	topic, dead := cluster.Topic(t, 2), cluster.Topic(t, 1)
	client, err := cluster.Client(kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	for n := range 10 {
		record := &kgo.Record{Topic: topic, Partition: int32(n % 2), Value: []byte("x")}
		if err := client.ProduceSync(t.Context(), record).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	for range 3 {
		if err := client.ProduceSync(t.Context(), &kgo.Record{Topic: dead, Value: []byte("x")}).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	counts := map[int32]int64{}
	ends, err := kadm.NewClient(client).ListEndOffsets(t.Context(), topic)
	if err != nil {
		t.Fatal(err)
	}
	ends.Each(func(o kadm.ListedOffset) { counts[o.Partition] = o.Offset })
	come := kadm.Offsets{}
	come.AddOffset(topic, 0, counts[0]-1, -1)
	come.AddOffset(topic, 1, counts[1]-3, -1)
	if err := kadm.NewClient(client).CommitAllOffsets(t.Context(), "billing", come); err != nil {
		t.Fatal(err)
	}

	c := load(t, fmt.Sprintf(`
database: {url: %q}
destinations:
  events: {kafka: {brokers: [%q]}}
  gone: {kafka: {brokers: ["127.0.0.1:1"]}}
consumers:
- {destination: events, group: billing, dead_letter_topic: %s}
- {destination: gone, group: billing}
- {destination: events, inbox: {consumer: shipping}}
- {destination: events, group: nobody, dead_letter_topic: %s}
- {destination: events, inbox: {consumer: shipping, database: {url: "sqlite://%s/none.db"}}}
`, "sqlite://"+filepath.Join(t.TempDir(), "box.db"), strings.Join(cluster.DirectSeeds(), ","), dead, dead, t.TempDir()), nil)
	db := migrated(t, c)
	const handled = `insert into outbox_inbox (consumer, event_id, body_hash) values ('shipping', 'a', '');
		insert into outbox_inbox_duplicate (consumer, event_id, times) values ('shipping', 'a', 3)`
	if _, err := db.ExecContext(t.Context(), handled); err != nil {
		t.Fatal(err)
	}
	own, err := ops.New(db, c.Database.Dialect(), c.Database.SchemaName())
	if err != nil {
		t.Fatal(err)
	}
	metrics := telemetry.NewMetrics(telemetry.MetricsConfig{
		Destinations: c.Names(), Units: func() []relay.UnitStatus { return nil },
		Status: telemetry.NewStatusCache(own.Status, slog.New(slog.DiscardHandler)),
	})
	metrics.Noticed("events", relay.Notice{Kind: relay.NoticePossibleDuplicate, Count: 2})
	i := newImpact(t.Context(), c, own, metrics)
	defer i.close()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	seen, err := i.look(ctx)
	if err != nil || len(seen) != 5 {
		t.Fatalf("got %+v, %v, want five consumers", seen, err)
	}
	if s := seen[0]; !s.LagKnown || !s.LettersKnown || s.Problem != "" || s.Lag != 4 || s.DeadLetters != 3 || s.State != "empty" ||
		s.PossibleDuplicates != 2 || len(s.Topics) != 1 || s.Topics[0] != (dashboard.TopicLag{Topic: topic, Partitions: 2, Lag: 4}) {
		t.Errorf("got %+v, want a lag of 4 in two partitions and 3 dead letters", s)
	}
	if s := seen[1]; s.LagKnown || !strings.Contains(s.Problem, "The lag of billing is not known") {
		t.Errorf("got %+v of a cluster that is away", s)
	}
	if s := seen[2]; s.Problem != "" || !s.InboxKnown || s.Handled.N != 1 || s.Duplicates.N != 3 || s.LastHandled == nil {
		t.Errorf("got %+v, want one event in the inbox, which came again three times", s)
	}
	if s := seen[3]; s.LagKnown && s.Lag != 0 || !s.LettersKnown || s.DeadLetters != 3 {
		t.Errorf("got %+v of a group that nobody is in, want the dead letters all the same", s)
	}
	if s := seen[4]; s.Problem == "" || s.InboxKnown {
		t.Errorf("got %+v of a database that is not there, want a problem", s)
	}
}

func TestRates(t *testing.T) {
	r := &rates{last: map[string]counting{}}
	start := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		after time.Duration
		count uint64
		want  float64
	}{
		{0, 100, 0},
		{time.Second, 200, 0}, // too soon for a rate
		{2 * time.Second, 300, 100},
		{3 * time.Second, 900, 100}, // the last rate stays good
		{4 * time.Second, 300, 0},
	} {
		if got := r.of("events", c.count, start.Add(c.after)); got != c.want {
			t.Errorf("after %v: got %v, want %v", c.after, got, c.want)
		}
	}
}
