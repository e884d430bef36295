package access_test

import (
	"context"
	"net"
	"net/http"
	"net/netip"
	"testing"
)

func mustAddr(t *testing.T, text string) netip.AddrPort {
	t.Helper()
	address, err := netip.ParseAddrPort(text)
	if err != nil {
		t.Fatal(err)
	}
	return address
}

// contextWith is that of a request that came in at a local address.
func contextWith(t *testing.T, local net.Addr) context.Context {
	return context.WithValue(t.Context(), http.LocalAddrContextKey, local)
}
