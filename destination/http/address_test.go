package http

import (
	"net/http"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/pillarbox-dev/pillarbox/relay"
)

func TestAddressRule(t *testing.T) {
	refused := []string{
		"0.0.0.0", "0.1.2.3", "10.0.0.1", "10.255.255.255", "100.64.0.1", "100.127.255.255", "127.0.0.1", "127.255.255.255",
		"169.254.169.254", "172.16.0.1", "172.31.255.255", "192.0.0.1", "192.0.0.255", "192.0.2.1", "192.88.99.1",
		"192.168.0.1", "198.18.0.1", "198.19.255.255", "198.51.100.1", "203.0.113.1", "224.0.0.1", "239.255.255.255",
		"240.0.0.1", "255.255.255.255",
		"::", "::1", "::7f00:1", "64:ff9b::a00:1", "100::1", "fc00::1", "fd12:3456::1", "fe80::1", "fe80::1%eth0",
		"fec0::1", "ff02::1",
		"1fff::1", "4000::1", "2001::1", "2001:0:1::1", "2001:1ff:ffff::1", "2001:db8::1", "2002:a00:1::1", "3fff::1", "3fff:fff::1",
		"::ffff:127.0.0.1", "::ffff:10.0.0.1", "::ffff:169.254.169.254", "::ffff:0:0",
	}
	public := []string{
		"1.1.1.1", "9.255.255.255", "11.0.0.0", "100.63.255.255", "100.128.0.0", "126.255.255.255", "128.0.0.0", "169.253.255.255",
		"169.255.0.0", "172.15.255.255", "172.32.0.0", "191.255.255.255", "192.0.1.0", "192.0.3.0", "192.88.98.255", "192.88.100.0",
		"192.167.255.255", "192.169.0.0", "198.17.255.255", "198.20.0.0", "198.51.99.255", "198.51.101.0", "203.0.112.255",
		"203.0.114.0", "223.255.255.255", "::ffff:1.1.1.1",
		"2000::1", "2001:200::1", "2001:db7::1", "2001:db9::1", "2001:4860:4860::8888", "2003::1",
		"2606:4700::1111", "3ffe::1", "3fff:1000::1",
	}
	var rule addressRule
	for _, text := range refused {
		if rule.check(netip.MustParseAddr(text)) == nil {
			t.Errorf("%s is allowed", text)
		}
		if err := (addressRule{all: true}).check(netip.MustParseAddr(text)); err != nil {
			t.Errorf("allow_private: %v", err)
		}
	}
	for _, text := range public {
		if err := rule.check(netip.MustParseAddr(text)); err != nil {
			t.Error(err)
		}
	}
}

func TestAllowAddresses(t *testing.T) {
	rule, problems := newAddressRule(false, []string{"10.1.2.3/16", "192.168.7.7", "fd00:1::/32"})
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	for text, want := range map[string]bool{
		"10.1.0.0": true, "10.1.255.255": true, "10.2.0.0": false, "::ffff:10.1.0.1": true, "192.168.7.7": true,
		"192.168.7.8": false, "fd00:1::5": true, "fd00:2::5": false, "127.0.0.1": false, "8.8.8.8": true,
	} {
		if got := rule.check(netip.MustParseAddr(text)) == nil; got != want {
			t.Errorf("%s is allowed: %v, want %v", text, got, want)
		}
	}
	_, problems = newAddressRule(false, []string{"10.0.0.0/33", "inside", "", "::ffff:10.0.0.0/104", "10.0.0.1:80"})
	if len(problems) != 5 {
		t.Errorf("problems %v, want one for each of 5", problems)
	}
}

// Whatever the host is called, what counts is the address that is dialled; and nothing gets as far as a connection.
func TestRefusedAddresses(t *testing.T) {
	var connected atomic.Int32
	server := newServer(t, func(http.ResponseWriter, *http.Request) { connected.Add(1) })
	port := server.URL[strings.LastIndexByte(server.URL, ':'):]
	for _, host := range []string{
		"127.0.0.1", "localhost", "[::1]", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "[::]", "0.0.0.0",
		"169.254.169.254", "[fe80::1%25lo]",
	} {
		d, err := New(Config{Endpoint: Endpoint{URL: "http://" + host + port}})
		if err != nil {
			t.Fatal(err)
		}
		t.Run(host, func(t *testing.T) {
			same(t, deliver(t, d, newEvent()),
				relay.Outcome{Kind: relay.Unavailable, Code: CodePolicy, Pause: true, Message: "put its range into allow_addresses"})
			if problems := d.Check(t.Context()); len(problems) != 1 || !strings.Contains(problems[0].Error(), "allow_addresses") {
				t.Errorf("Check = %v, want the address refused", problems)
			}
		})
	}
	// Other ways to write 127.0.0.1 are names, which do not resolve.
	for _, host := range []string{"2130706433", "0x7f000001", "0177.0.0.1", "127.1"} {
		t.Run(host, func(t *testing.T) {
			d, err := New(Config{Endpoint: Endpoint{URL: "http://" + host + port}})
			if err != nil {
				t.Fatal(err)
			}
			if got := deliver(t, d, newEvent()); got.Kind != relay.Unavailable || got.Code == CodeDial {
				t.Errorf("outcome %+v, want it refused or not resolved", got)
			}
		})
	}
	if n := connected.Load(); n != 0 {
		t.Errorf("%d requests arrived", n)
	}
	d, err := New(Config{Endpoint: Endpoint{URL: server.URL}, AllowAddresses: []string{"127.0.0.0/8"}})
	if err != nil {
		t.Fatal(err)
	}
	same(t, deliver(t, d, newEvent()), relay.Outcome{Kind: relay.Published, Receipt: "200"})
}
