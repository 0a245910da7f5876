package shaper

import "testing"

func TestHandle(t *testing.T) {
	const stored = 1796159315416000000
	for _, c := range []struct{ reply, want string }{
		{"$JS.ACK.FLOWGATE.shaper.1.17.4.1796159315416000000.99", "$JS.ACK.FLOWGATE.shaper.1.17.4.1796159315416000000.0"},
		{"$JS.ACK.hub.fd1Zz.FLOWGATE.shaper.3.17.40.1796159315416000000.0", "$JS.ACK.hub.fd1Zz.FLOWGATE.shaper.1.17.40.1796159315416000000.0"},
		// Of another form.
		{"$JS.ACK.FLOWGATE.shaper.1.17.4.1796159315416000000.99.rnd", ""},
		{"$JS.ACK.FLOWGATE.shaper.1.18.4.1796159315416000000.99", ""},
		{"$JS.ACK.FLOWGATE.shaper.1.17.4.1796159315416000001.99", ""},
		{"$JS.ACK.FLOWGATE.shaper.0.17.4.1796159315416000000.99", ""},
		{"a.b.c", ""},
		{"", ""},
	} {
		got := ""
		if prefix, consumer, ok := readHandle(c.reply, 17, stored); ok {
			got = handle(prefix, 17, stored, consumer)
		}
		if got != c.want {
			t.Errorf("%s became %q", c.reply, got)
		}
	}
}
