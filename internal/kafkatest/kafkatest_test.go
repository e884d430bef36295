package kafkatest_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/pillarbox-dev/pillarbox/internal/kafkatest"
)

func produce(t *testing.T, c *kafkatest.Cluster, topic, value string) {
	t.Helper()
	client, err := c.Client()
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if err := client.ProduceSync(ctx, &kgo.Record{Topic: topic, Value: []byte(value)}).FirstErr(); err != nil {
		t.Fatal(err)
	}
}

func TestRestartKeepsAddressAndData(t *testing.T) {
	c := kafkatest.New(t, kafkatest.Options{})
	topic := c.Topic(t, 1)
	produce(t, c, topic, "before")
	broker := c.Brokers[0]
	for i, down := range []func() error{broker.Stop, broker.Kill} {
		before := broker.PID()
		if err := down(); err != nil {
			t.Fatal(err)
		}
		if syscall.Kill(before, 0) == nil || broker.PID() != 0 {
			t.Fatalf("process %d is still there", before)
		}
		if err := broker.Up(); err != nil {
			t.Fatal(err)
		}
		produce(t, c, topic, "after")
		if got := c.Records(t, topic, i+2); len(got) != i+2 || string(got[0].Value) != "before" {
			t.Errorf("restart %d: the topic holds %d records, want %d", i, len(got), i+2)
		}
	}
}

// TestBrokersEndWithAKilledOwner starts this test binary again, which starts a broker; then it kills the binary.
func TestBrokersEndWithAKilledOwner(t *testing.T) {
	if os.Getenv("KAFKATEST_OWNER") != "" {
		c, err := kafkatest.Start(kafkatest.Options{})
		if err != nil {
			t.Fatal(err)
		}
		dir := filepath.Dir(filepath.Dir(filepath.Dir(c.Brokers[0].LogFile())))
		fmt.Println("PID", c.Brokers[0].PID(), dir)
		select {}
	}
	owner := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestBrokersEndWithAKilledOwner$")
	owner.Env = append(os.Environ(), "KAFKATEST_OWNER=1")
	out, err := owner.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := owner.Start(); err != nil {
		t.Fatal(err)
	}
	pid, dir := 0, ""
	for lines := bufio.NewScanner(out); pid == 0 && lines.Scan(); {
		if said, ok := strings.CutPrefix(lines.Text(), "PID "); ok {
			id, rest, _ := strings.Cut(said, " ")
			pid, _ = strconv.Atoi(id)
			dir = rest
		} else {
			t.Log(lines.Text())
		}
	}
	_ = owner.Process.Kill()
	_ = owner.Wait()
	if pid == 0 {
		t.Fatal("the owner started no broker")
	}
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		_, err := os.Stat(dir)
		if os.IsNotExist(err) && syscall.Kill(pid, 0) != nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("after the owner was killed: folder %s says %v, kill(%d, 0) says %v", dir, err, pid, syscall.Kill(pid, 0))
		}
	}
}

func TestMissingProgramsFailWithAHint(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	_, err := kafkatest.Start(kafkatest.Options{})
	if err == nil || !strings.Contains(err.Error(), "apt-get install") {
		t.Errorf("got %v, want an error that says what to install", err)
	}
	t.Setenv("PILLARBOX_KAFKA_LIB", t.TempDir())
	if _, err := kafkatest.Start(kafkatest.Options{}); err == nil || !strings.Contains(err.Error(), "PILLARBOX_KAFKA_LIB") {
		t.Errorf("got %v, want an error that names the variable", err)
	}
}

func TestBadSettingShowsTheLog(t *testing.T) {
	_, err := kafkatest.Start(kafkatest.Options{Settings: map[string]string{"log.segment.bytes": "lots"}})
	if err == nil || !strings.Contains(err.Error(), "log.segment.bytes") {
		t.Errorf("got %v, want an error that shows the broker's own words", err)
	}
}
