package sqlite_test

import (
	"context"
	"errors"
	"testing"

	"github.com/pillarbox-dev/pillarbox/store/sqlite"
)

func TestWake(t *testing.T) {
	d := newDatabase(t, sqlite.Config{})
	d.store.Wake() // with nobody listening
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	first, err := d.store.Listen(ctx)
	if err != nil {
		t.Fatal(err)
	}
	second, err := d.store.Listen(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for range 3 { // does not block, however often it is called
		d.store.Wake()
	}
	for name, c := range map[string]<-chan struct{}{"first": first, "second": second} {
		select {
		case <-c:
		default:
			t.Errorf("the %s listener was not woken", name)
		}
	}
	cancel()
	if _, open := <-first; open {
		t.Error("the first listener was woken once more, want its channel closed")
	}
	d.store.Wake()
	if _, open := <-second; !open {
		t.Error("the second listener's channel was closed with the first one's context")
	}
	if _, err := d.store.Listen(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("Listen with a context that has ended: got %v, want it said", err)
	}
}
