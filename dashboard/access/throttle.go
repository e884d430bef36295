package access

import (
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"
)

// What a client may get wrong: so many in a row, and then one each refill. Clients are told apart by address, and remembered up
// to a bound; those beyond it share one account.
const (
	freeFailures = 10
	refill       = 6 * time.Second
	maxClients   = 1024
)

// throttle slows down those who guess. It belongs to one process; several of them let so many times more be tried.
type throttle struct {
	mu       sync.Mutex
	accounts map[netip.Addr]*account
}

// account holds how many failures are left at a moment.
type account struct {
	left float64
	at   time.Time
}

func newThrottle() *throttle { return &throttle{accounts: map[netip.Addr]*account{}} }

// try calls a check unless the client has failed too often, and says how long to wait then. Checks are made one at a time: many
// at once would all begin before the first has failed.
func (t *throttle) try(client netip.Addr, now time.Time, check func() bool) (ok bool, wait time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	account := t.accountOf(client, now)
	if account != nil && account.left < 1 {
		return false, time.Duration((1 - account.left) * float64(refill))
	}
	if check() {
		return true, 0
	}
	if account == nil {
		account = t.open(client, now)
	}
	account.left--
	return false, 0
}

// accountOf returns the account of a client that has failed lately, filled up to now; nil: it has not. Those for whom there was
// no room have the shared one, until that is full again.
func (t *throttle) accountOf(client netip.Addr, now time.Time) *account {
	if own := t.accounts[client]; own != nil {
		own.fill(now)
		return own
	}
	shared := t.accounts[netip.Addr{}]
	if shared == nil {
		return nil
	}
	if shared.fill(now); shared.left >= freeFailures {
		delete(t.accounts, netip.Addr{})
		return nil
	}
	return shared
}

func (a *account) fill(now time.Time) {
	a.left = min(freeFailures, a.left+max(0, now.Sub(a.at).Seconds())/refill.Seconds())
	a.at = now
}

// open adds an account, and forgets those that are full again.
func (t *throttle) open(client netip.Addr, now time.Time) *account {
	if len(t.accounts) >= maxClients {
		for other, account := range t.accounts {
			if account.fill(now); account.left >= freeFailures {
				delete(t.accounts, other)
			}
		}
	}
	if len(t.accounts) >= maxClients {
		client = netip.Addr{}
	}
	opened := &account{left: freeFailures, at: now}
	t.accounts[client] = opened
	return opened
}

// client returns the address that a request comes from. Of an IPv6 address the network counts: one host has all of it. What a
// header says of the client is not believed.
func client(r *http.Request) netip.Addr {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return netip.Addr{}
	}
	address, err := netip.ParseAddr(host)
	if err != nil {
		return netip.Addr{}
	}
	address = address.Unmap().WithZone("")
	if address.Is6() {
		if network, err := address.Prefix(64); err == nil {
			return network.Addr()
		}
	}
	return address
}
