package http

import (
	"fmt"
	"net/netip"
	"strings"
	"syscall"
)

// refusedIPv4 and refusedIPv6 are what is not public unicast (IANA special-purpose registries). Of IPv6, everything
// outside globalIPv6 is refused as well.
var (
	refusedIPv4 = []refusedRange{
		{netip.MustParsePrefix("0.0.0.0/8"), "this network"},
		{netip.MustParsePrefix("10.0.0.0/8"), "private"},
		{netip.MustParsePrefix("100.64.0.0/10"), "shared by a carrier"},
		{netip.MustParsePrefix("127.0.0.0/8"), "loopback"},
		{netip.MustParsePrefix("169.254.0.0/16"), "link-local, cloud metadata"},
		{netip.MustParsePrefix("172.16.0.0/12"), "private"},
		{netip.MustParsePrefix("192.0.0.0/24"), "protocol assignments"},
		{netip.MustParsePrefix("192.0.2.0/24"), "documentation"},
		{netip.MustParsePrefix("192.88.99.0/24"), "6to4 relay"},
		{netip.MustParsePrefix("192.168.0.0/16"), "private"},
		{netip.MustParsePrefix("198.18.0.0/15"), "benchmarks"},
		{netip.MustParsePrefix("198.51.100.0/24"), "documentation"},
		{netip.MustParsePrefix("203.0.113.0/24"), "documentation"},
		{netip.MustParsePrefix("224.0.0.0/4"), "multicast"},
		{netip.MustParsePrefix("240.0.0.0/4"), "reserved, broadcast"},
	}
	globalIPv6  = netip.MustParsePrefix("2000::/3")
	refusedIPv6 = []refusedRange{
		{netip.MustParsePrefix("2001::/23"), "protocol assignments, Teredo"},
		{netip.MustParsePrefix("2001:db8::/32"), "documentation"},
		{netip.MustParsePrefix("2002::/16"), "6to4"},
		{netip.MustParsePrefix("3fff::/20"), "documentation"},
	}
)

type refusedRange struct {
	prefix netip.Prefix
	what   string
}

// addressRule says which addresses may be dialled. The zero value: public unicast alone.
type addressRule struct {
	all     bool
	allowed []netip.Prefix
}

// newAddressRule reads allow_private and allow: addresses and prefixes in CIDR form.
func newAddressRule(allowPrivate bool, allow []string) (rule addressRule, problems []error) {
	rule.all = allowPrivate
	for _, text := range allow {
		prefix, err := netip.ParsePrefix(text)
		if address, e := netip.ParseAddr(text); e == nil {
			prefix, err = netip.PrefixFrom(address, address.BitLen()), nil
		}
		if err != nil || prefix.Addr().Is4In6() {
			problems = append(problems, fmt.Errorf("allow_addresses: %s is no address range: write it like 10.1.0.0/16 or 10.1.2.3",
				quote(text)))
			continue
		}
		rule.allowed = append(rule.allowed, prefix.Masked())
	}
	return rule, problems
}

// refusedAddress is the error for an address that the rule does not allow.
type refusedAddress struct {
	address netip.Addr
	what    string
}

func (e *refusedAddress) Error() string {
	return fmt.Sprintf("%s is refused (%s): if the endpoint is meant to be inside, put its range into allow_addresses "+
		"or set allow_private", e.address, e.what)
}

// check returns a *refusedAddress for an address that may not be dialled.
func (r addressRule) check(address netip.Addr) error {
	address = address.Unmap().WithZone("")
	if r.all {
		return nil
	}
	for _, prefix := range r.allowed {
		if prefix.Contains(address) {
			return nil
		}
	}
	refused := refusedIPv6
	if address.Is4() {
		refused = refusedIPv4
	} else if !globalIPv6.Contains(address) {
		return &refusedAddress{address, "not public"}
	}
	for _, r := range refused {
		if r.prefix.Contains(address) {
			return &refusedAddress{address, r.what}
		}
	}
	return nil
}

// control is a net.Dialer's Control: it sees each address after the name was resolved and right before it is dialled,
// so a name that changes its address in between gains nothing.
func (r addressRule) control(network, address string, _ syscall.RawConn) error {
	to, err := netip.ParseAddrPort(address)
	if err != nil {
		return &refusedAddress{what: fmt.Sprintf("%s %q is no address", network, address)}
	}
	return r.check(to.Addr())
}

// checkHost applies the rule to a host that is an address by itself; with a proxy it is not dialled here.
func (r addressRule) checkHost(host string) error {
	address, err := netip.ParseAddr(strings.Trim(host, "[]"))
	if err != nil {
		return nil // a name: its addresses are checked when they are dialled
	}
	return r.check(address)
}
