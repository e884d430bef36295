package access

import (
	"net"
	"net/http"
	"net/netip"
	"strings"
)

// refuseStrangers lets only this machine in, where no credential is asked for. Both ends of the connection have to be on it. The
// name in the Host header has to be as well: a page of another site may give its own name this machine's address, and then read
// the answers (DNS rebinding). And a proxy speaks for others.
func refuseStrangers(r *http.Request) *refusal {
	hint := "use http://localhost, or name tokens or users in the section dashboard of the configuration"
	switch {
	case !isLoopback(r.RemoteAddr) || !isLocalEnd(r):
		return refused(http.StatusForbidden, "only this machine is let in while no credential is configured", hint)
	case !isLoopback(r.Host):
		return refused(http.StatusForbidden, "the name in the Host header is not this machine's", hint)
	case isForwarded(r):
		return refused(http.StatusForbidden, "a proxy has passed this request on, and no credential is configured", hint)
	}
	return nil
}

func isLocalEnd(r *http.Request) bool {
	address, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	return !ok || isLoopback(address.String())
}

// isLoopback tells it of a host with or without a port.
func isLoopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		host = strings.Trim(address, "[]")
	}
	host = strings.TrimSuffix(strings.ToLower(host), ".")
	if host == "localhost" || strings.HasSuffix(host, ".localhost") {
		return true // browsers resolve these to this machine, whatever a name server says
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.Unmap().IsLoopback()
}

func isForwarded(r *http.Request) bool {
	for _, name := range []string{"Forwarded", "X-Forwarded-For", "X-Real-Ip", "Via"} {
		if r.Header.Get(name) != "" {
			return true
		}
	}
	return false
}
