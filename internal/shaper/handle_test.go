package shaper

import (
	"testing"
	"unsafe"
)

func TestHandle(t *testing.T) {
	for _, c := range []struct{ reply, want string }{
		{"$JS.ACK.FLOWGATE.shaper.1.17.4.1796159315416000000.99", "$JS.ACK.FLOWGATE.shaper.1.17.4.1796159315416000000.0"},
		{"$JS.ACK.hub.fd1Zz.FLOWGATE.shaper.3.17.40.1796159315416000000.0", "$JS.ACK.hub.fd1Zz.FLOWGATE.shaper.3.17.40.1796159315416000000.0"},
		// Of another form: kept as it is.
		{"$JS.ACK.FLOWGATE.shaper.1.17.4.1796159315416000000.99.rnd", "$JS.ACK.FLOWGATE.shaper.1.17.4.1796159315416000000.99.rnd"},
		{"a.b.c", "a.b.c"},
		{"", ""},
	} {
		if got := newHandle(c.reply, 17, 1796159315416000000, nil).subject(17, 1796159315416000000); got != c.want {
			t.Errorf("%s became %s", c.reply, got)
		}
	}
}

func TestHandlesShareTheirPrefix(t *testing.T) {
	a := newHandle("$JS.ACK.FLOWGATE.shaper.1.17.4.1796159315416000000.99", 17, 1796159315416000000, nil)
	b := newHandle("$JS.ACK.FLOWGATE.shaper.1.18.5.1796159315416000001.98", 18, 1796159315416000001, a.prefix)
	c := newHandle("$JS.ACK.OTHER.shaper.1.18.5.1796159315416000001.98", 18, 1796159315416000001, b.prefix)
	if a.prefix != b.prefix || *c.prefix != "$JS.ACK.OTHER.shaper" {
		t.Errorf("prefixes %q %q %q", *a.prefix, *b.prefix, *c.prefix)
	}
}

// What an index of 100,000 may take is in the load test; this is where it comes from.
func TestMessageIsSmall(t *testing.T) {
	if size := unsafe.Sizeof(message{}); size > 144 {
		t.Errorf("a message takes %d bytes beside its payload", size)
	}
}
