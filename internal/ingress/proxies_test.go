package ingress

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/nats-io/nats.go/jetstream"
)

func TestClientAddress(t *testing.T) {
	p, err := parseProxies([]string{"10.0.0.0/8", "192.0.2.1", "fd00::/8", "::ffff:172.16.0.0/108"})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, remote string
		forwarded    []string
		want         string
	}{
		{"no header", "10.0.0.1:80", nil, "10.0.0.1"},
		{"not a proxy: its word is not taken", "203.0.113.9:80", []string{"198.51.100.1"}, "203.0.113.9"},
		{"one proxy", "10.0.0.1:80", []string{"198.51.100.1"}, "198.51.100.1"},
		{"what the client claims stands left", "10.0.0.1:80", []string{"1.1.1.1, 198.51.100.1"}, "198.51.100.1"},
		{"two proxies", "10.0.0.1:80", []string{"198.51.100.1, 10.9.9.9"}, "198.51.100.1"},
		{"a bare address as a network", "192.0.2.1:80", []string{"198.51.100.1"}, "198.51.100.1"},
		{"next to the bare address", "192.0.2.2:80", []string{"198.51.100.1"}, "192.0.2.2"},
		{"IPv4 network written as IPv6", "172.16.3.4:80", []string{"198.51.100.1"}, "198.51.100.1"},
		{"IPv4 in IPv6", "[::ffff:10.0.0.1]:80", []string{"::ffff:198.51.100.1"}, "198.51.100.1"},
		{"several lines", "10.0.0.1:80", []string{"1.1.1.1", "198.51.100.1", "10.2.2.2"}, "198.51.100.1"},
		{"proxies all the way", "10.0.0.1:80", []string{"10.0.0.3,10.0.0.2"}, "10.0.0.3"},
		{"spaces", "10.0.0.1:80", []string{" \t198.51.100.1 ,\t 10.2.2.2 "}, "198.51.100.1"},
		{"ports", "10.0.0.1:80", []string{"198.51.100.1:4711, 10.2.2.2:80"}, "198.51.100.1"},
		{"IPv6", "[fd00::1]:80", []string{"2001:db8::7"}, "2001:db8::7"},
		{"IPv6 in brackets", "[fd00::1]:80", []string{"[2001:db8::7]"}, "2001:db8::7"},
		{"IPv6 in brackets with a port", "[fd00::1]:80", []string{"[2001:db8::7]:4711, [fd00::2]"}, "2001:db8::7"},
		{"IPv6 written at length", "[fd00::1]:80", []string{"2001:0DB8:0:0:0:0:0:7"}, "2001:db8::7"},
		{"a zone", "[fd00::1%eth0]:80", []string{"fe80::7%eth0"}, "fe80::7"},
		{"garbage", "10.0.0.1:80", []string{"198.51.100.1, unknown"}, "10.0.0.1"},
		{"garbage behind a proxy", "10.0.0.1:80", []string{"198.51.100.1, _hidden, 10.2.2.2"}, "10.2.2.2"},
		{"nothing between commas", "10.0.0.1:80", []string{"198.51.100.1,, 10.2.2.2"}, "10.2.2.2"},
		{"an empty line", "10.0.0.1:80", []string{"198.51.100.1", ""}, "10.0.0.1"},
		{"brackets around IPv4", "10.0.0.1:80", []string{"[198.51.100.1]"}, "10.0.0.1"},
		{"no address", "@", []string{"198.51.100.1"}, "invalid IP"},
	} {
		if got := p.client(c.remote, c.forwarded).String(); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
	if got := (proxies)(nil).client("127.0.0.1:1", []string{"198.51.100.1"}).String(); got != "127.0.0.1" {
		t.Errorf("without proxies: %s", got)
	}
	for _, s := range []string{"", "10.0.0.0/33", "proxy", "10.0.0.0/8/8", "fe80::1%eth0", "::ffff:0:0/64"} {
		if _, err := parseProxies([]string{s}); err == nil || !strings.Contains(err.Error(), `"`+s+`"`) {
			t.Errorf("%q: %v", s, err)
		}
	}
}

// Whatever stands in the header: the address is the connection's, or one that a
// trusted proxy named.
func FuzzClientAddress(f *testing.F) {
	f.Add("10.0.0.1:80", "1.1.1.1, [2001:db8::7]:80", "10.2.2.2")
	f.Add("[::1]:80", ",", "unknown")
	f.Add("203.0.113.9:1", "10.0.0.1", "")
	p, _ := parseProxies([]string{"10.0.0.0/8"})
	f.Fuzz(func(t *testing.T, remote, one, two string) {
		got := p.client(remote, []string{one, two})
		conn, ok := hostAddr(remote)
		if !ok {
			if got.IsValid() {
				t.Errorf("an address out of nothing: %v", got)
			}
			return
		}
		if !p.trusted(conn) && got != conn {
			t.Errorf("%v took the word of %v", got, conn)
		}
		if got != conn {
			named := false
			for part := range strings.SplitSeq(one+","+two, ",") {
				a, ok := hostAddr(strings.Trim(part, " \t"))
				named = named || ok && a == got
			}
			if !named {
				t.Errorf("%v stands nowhere in %q, %q", got, one, two)
			}
		}
		if back, err := netip.ParseAddr(got.String()); err != nil || back != got {
			t.Errorf("%v is written as %q", got, got.String())
		}
	})
}

func TestHTTPForwardedFor(t *testing.T) {
	for _, c := range []struct {
		proxies []string
		want    string
	}{{nil, "127.0.0.1"}, {[]string{"127.0.0.0/8"}, "198.51.100.1"}} {
		w := newWeb(t, func(cfg *Config, _ *Deps, _ *jetstream.StreamConfig) { cfg.TrustedProxies = c.proxies }).run()
		r := w.post("acme/t", "", "X-Forwarded-For", "9.9.9.9", "X-Forwarded-For", "198.51.100.1")
		if got := w.limits.seen().IP; r.status != 202 || got != c.want {
			t.Errorf("behind %v: %s, want %s; %s", c.proxies, got, c.want, r.body)
		}
	}
}
