package ingress

import (
	"fmt"
	"net/netip"
	"strings"
)

// proxies are the networks whose word on a client's address is believed.
type proxies []netip.Prefix

// parseProxies reads CIDRs; a bare address is a network of its own.
func parseProxies(list []string) (proxies, error) {
	var p proxies
	for _, s := range list {
		prefix, err := netip.ParsePrefix(s)
		if err != nil {
			addr, e := netip.ParseAddr(s)
			if e != nil || addr.Zone() != "" {
				return nil, fmt.Errorf("%q is not a network like 10.0.0.0/8 or fd00::/8", s)
			}
			prefix = netip.PrefixFrom(addr, addr.BitLen())
		}
		if prefix.Addr().Is4In6() {
			if prefix.Bits() < 96 {
				return nil, fmt.Errorf("%q reaches beyond IPv4; write it as IPv4 or as IPv6", s)
			}
			prefix = netip.PrefixFrom(prefix.Addr().Unmap(), prefix.Bits()-96)
		}
		p = append(p, prefix.Masked())
	}
	return p, nil
}

func (p proxies) trusted(a netip.Addr) bool {
	for _, prefix := range p {
		if prefix.Contains(a) {
			return true
		}
	}
	return false
}

// client is the address a request comes from: the connection's, or if that is a
// trusted proxy the last one in X-Forwarded-For that is none. A proxy appends the
// address that it saw, so what stands left of the first untrusted one from the right
// is that client's own claim. What is no address ends the walk, too: the proxy that
// passed it on is the last that is known. Invalid if the connection has no address.
func (p proxies) client(remote string, forwarded []string) netip.Addr {
	last, ok := hostAddr(remote)
	if !ok {
		return netip.Addr{}
	}
	for i := len(forwarded) - 1; i >= 0; i-- {
		rest, more := forwarded[i], true
		for more {
			if !p.trusted(last) {
				return last
			}
			var hop string
			if comma := strings.LastIndexByte(rest, ','); comma >= 0 {
				rest, hop = rest[:comma], rest[comma+1:]
			} else {
				hop, more = rest, false
			}
			a, ok := hostAddr(strings.Trim(hop, " \t"))
			if !ok {
				return last
			}
			last = a
		}
	}
	return last
}

// hostAddr reads an address with or without a port, IPv6 with or without brackets.
func hostAddr(s string) (netip.Addr, bool) {
	if ap, err := netip.ParseAddrPort(s); err == nil {
		return plainAddr(ap.Addr()), true
	}
	if len(s) > 2 && s[0] == '[' && s[len(s)-1] == ']' {
		s = s[1 : len(s)-1]
		if !strings.Contains(s, ":") {
			return netip.Addr{}, false
		}
	}
	a, err := netip.ParseAddr(s)
	return plainAddr(a), err == nil
}
