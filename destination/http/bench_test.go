package http

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/pillarbox-dev/pillarbox/outbox/webhook"
	"github.com/pillarbox-dev/pillarbox/relay"
)

// BenchmarkDeliver compares deliveries through the destination with the same signed POST by a plain net/http client: 32
// goroutines, one receiver on this machine that verifies nothing. They take turns, so that both have the same machine. The
// destination reads its secret from a file for each delivery; the client holds it in memory.
func BenchmarkDeliver(b *testing.B) {
	const goroutines, share = 32, 2000
	server := newServer(b, func(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) })
	payload := bytes.Repeat([]byte("0123456789"), 42)
	event := newEvent(func(e *relay.Event) { e.Payload, e.Headers = payload, []byte(`{"correlationId":"c-1"}`) })

	secret := secretFile(b, "s3cret")
	time.Sleep(6 * time.Second) // as old as a file that was mounted before the relay started
	d := newDestination(b, server.URL, func(c *Config) {
		c.Signing.Hex = true
		c.Endpoint.SecretFiles = []string{secret}
	})
	viaDestination := func(ctx context.Context) bool {
		return d.Deliver(ctx, []relay.Delivery{{Event: event}})[0].Kind == relay.Published
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConnsPerHost, transport.DisableCompression = goroutines, true
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport}
	viaClient := func(ctx context.Context) bool { return plainPost(ctx, client, server.URL, event) }

	var took, cpu [2]time.Duration
	var sent [2]int
	for b.Loop() {
		for i, send := range []func(context.Context) bool{viaDestination, viaClient} {
			start, used := time.Now(), cpuTime(b)
			if !inParallel(goroutines, share, send) {
				b.Fatal("a delivery failed")
			}
			took[i] += time.Since(start)
			cpu[i] += cpuTime(b) - used
			sent[i] += share
		}
	}
	perSecond := func(i int) float64 { return float64(sent[i]) / took[i].Seconds() }
	b.ReportMetric(perSecond(0), "deliveries/s")
	b.ReportMetric(perSecond(1), "client-posts/s")
	b.ReportMetric(100*perSecond(0)/perSecond(1), "%of-client")
	b.ReportMetric(cpu[0].Seconds()/float64(sent[0])*1e6, "cpu-µs/delivery")
	b.ReportMetric(cpu[1].Seconds()/float64(sent[1])*1e6, "cpu-µs/client-post")
	b.ReportMetric(0, "ns/op")
}

// cpuTime is what this process has used, the receiver included; unlike the clock it does not count what else the machine does.
func cpuTime(b *testing.B) time.Duration {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		b.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

// inParallel sends so many in all, each with a deadline of its own as the relay gives it.
func inParallel(goroutines, share int, send func(context.Context) bool) bool {
	var left atomic.Int64
	left.Store(int64(share))
	var failed atomic.Bool
	var all sync.WaitGroup
	for range goroutines {
		all.Go(func() {
			for left.Add(-1) >= 0 {
				ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
				if !send(ctx) {
					failed.Store(true)
				}
				cancel()
			}
		})
	}
	all.Wait()
	return !failed.Load()
}

func plainPost(ctx context.Context, client *http.Client, url string, e *relay.Event) bool {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(e.Payload))
	if err != nil {
		return false
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("User-Agent", "plain")
	r.Header.Set("Event-Key", e.ID)
	r.Header.Set("Pillarbox-Event-Id", e.ID)
	r.Header.Set("Pillarbox-Event-Type", e.Type)
	r.Header.Set("Pillarbox-Topic", e.Topic)
	r.Header.Set("Correlationid", "c-1")
	r.Header.Set("Pillarbox-Signature", webhook.SignHex([]byte("s3cret"), e.Payload))
	answer, err := client.Do(r)
	if err != nil {
		return false
	}
	defer answer.Body.Close()
	_, _ = io.Copy(io.Discard, answer.Body)
	return answer.StatusCode == http.StatusOK
}
