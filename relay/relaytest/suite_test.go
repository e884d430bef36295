package relaytest_test

import (
	"testing"

	"github.com/pillarbox-dev/pillarbox/relay"
	"github.com/pillarbox-dev/pillarbox/relay/relaytest"
)

// The store in memory keeps to what package relay says of stores.
func TestMemory(t *testing.T) {
	features := relaytest.StoreFeatures{Gaps: true, TwoPhase: true, Wake: true, Shards: true}
	relaytest.TestStore(t, features, func(*testing.T) relaytest.Backend { return memory{&relaytest.Memory{}} })
}

// memory is the Backend of a Memory.
type memory struct{ m *relaytest.Memory }

func (b memory) Store() relay.Store { return b.m }

func (b memory) Begin(testing.TB) relaytest.Producer { return &producer{tx: b.m.Begin()} }

func (b memory) Cursor(_ testing.TB, destination string) (relaytest.CursorRow, bool) {
	return b.m.Cursor(destination)
}

func (b memory) Cursors(_ testing.TB, destination string) []relaytest.CursorRow {
	return b.m.Cursors(destination)
}

func (b memory) DeleteEvents(_ testing.TB, seqs ...int64) { b.m.Delete(seqs...) }

func (b memory) Deliveries(_ testing.TB, destination string) []relaytest.DeliveryRow {
	return b.m.Deliveries(destination)
}

func (b memory) SetPause(t testing.TB, destination string, p relay.Pause) {
	if err := b.m.SetPause(destination, p); err != nil {
		t.Fatal(err)
	}
}

// producer is a Producer with all that PostgreSQL can do.
type producer struct {
	tx        *relaytest.Tx
	savepoint int
}

func (p *producer) Insert(_ testing.TB, e relay.Event) int64 { return p.tx.Insert(e) }
func (p *producer) Savepoint(testing.TB)                     { p.savepoint = p.tx.Savepoint() }
func (p *producer) RollbackTo(testing.TB)                    { p.tx.RollbackTo(p.savepoint) }
func (p *producer) Prepare(testing.TB)                       {}
func (p *producer) Commit(testing.TB)                        { p.tx.Commit() }
func (p *producer) Rollback(testing.TB)                      { p.tx.Rollback() }
