package crashtest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"github.com/pillarbox-dev/pillarbox/relay"
)

// parcel is what a relay posts: one call of Deliver.
type parcel struct {
	Owner      string
	Deliveries []parcelDelivery
}

type parcelDelivery struct {
	Seq               int64
	ID                string
	Key               string
	PossibleDuplicate bool
}

// poster is the relay's destination: it posts batches to the receiver.
type poster struct{ args processArgs }

func (*poster) MaxBatch() int { return 5 }

func (p *poster) Deliver(ctx context.Context, batch []relay.Delivery) []relay.Outcome {
	fmt.Println("deliver")
	parcel := parcel{Owner: p.args.Name}
	for _, d := range batch {
		parcel.Deliveries = append(parcel.Deliveries, parcelDelivery{d.Seq, d.ID, d.Key, d.PossibleDuplicate})
	}
	outcomes := make([]relay.Outcome, len(batch))
	err := p.post(ctx, parcel)
	for i, d := range batch {
		if d.ID == p.args.Poison {
			kill()
		}
		outcomes[i] = relay.Outcome{Kind: relay.Published, Receipt: "200"}
		if err != nil {
			outcomes[i] = relay.Outcome{Kind: relay.Retry, Code: "POST", Message: err.Error(), Uncertain: true}
		}
	}
	return outcomes
}

func (p *poster) post(ctx context.Context, parcel parcel) error {
	body, err := json.Marshal(parcel)
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, p.args.Receiver, bytes.NewReader(body))
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("the receiver answered %s", response.Status)
	}
	return nil
}

// receiver keeps all that arrives, in order. It lives in the test's process, so it outlives every relay.
type receiver struct {
	url string

	mu       sync.Mutex
	arrivals []arrival
	inbox    map[string]bool // by event id
	holding  map[string]chan struct{}
	held     map[*parcel]bool // whose answers are kept back
}

type arrival struct {
	parcelDelivery
	owner string
}

func newReceiver(t *testing.T) *receiver {
	t.Helper()
	r := &receiver{inbox: map[string]bool{}, holding: map[string]chan struct{}{}, held: map[*parcel]bool{}}
	server := httptest.NewServer(r)
	t.Cleanup(server.Close)
	r.url = server.URL
	return r
}

func (r *receiver) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	var p parcel
	if err := json.NewDecoder(request.Body).Decode(&p); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest) // cut off by a kill: it never arrived
		return
	}
	hold := r.arrive(&p)
	if hold == nil {
		return
	}
	select {
	case <-hold:
	case <-request.Context().Done(): // it does not wait any longer
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.held, &p)
}

// arrive notes what has arrived. The answer is held back until what it returns is closed, unless that is nil.
func (r *receiver) arrive(p *parcel) (hold chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, d := range p.Deliveries {
		r.arrivals = append(r.arrivals, arrival{d, p.Owner})
		r.inbox[d.ID] = true
	}
	if hold = r.holding[p.Owner]; hold != nil {
		r.held[p] = true
	}
	return hold
}

// heldUp returns how many calls are held up, and how many keys are in them.
func (r *receiver) heldUp() (calls, lanes int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	busy := map[string]bool{}
	for p := range r.held {
		for _, d := range p.Deliveries {
			busy[d.Key] = true
		}
	}
	return len(r.held), len(busy)
}

// hold keeps answers to a relay back until what it returns is called.
func (r *receiver) hold(owner string) (release func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := make(chan struct{})
	r.holding[owner] = c
	return sync.OnceFunc(func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.holding, owner)
		close(c)
	})
}

// has tells whether an event has arrived.
func (r *receiver) has(id string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.inbox[id]
}

// all returns what has arrived.
func (r *receiver) all() []arrival {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]arrival(nil), r.arrivals...)
}
