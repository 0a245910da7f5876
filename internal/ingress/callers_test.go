package ingress

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// An answer reaches who waits for it, once; who gets none is answered in time, and what
// comes too late reaches nobody.
func TestCallers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		passed := map[string]outcome{}
		start := time.Now()
		now := func() int64 { return int64(time.Since(start)) + 1 }
		c := newCallers("in", now, func(reply string, o outcome) { passed[reply] = o })
		first, one := c.enter(now())
		second, two := c.enter(now())
		if one == two || !strings.HasPrefix(one, "in.") {
			t.Fatalf("reply subjects %s and %s", one, two)
		}
		if !c.answer(two, outcome{ack: []byte("2")}) || !c.answer(two, outcome{ack: []byte("again")}) {
			t.Error("its own subject is not known")
		}
		for _, reply := range []string{"", "in", "inx.1", "_INBOX.1"} {
			if c.answer(reply, outcome{}) {
				t.Errorf("%q is taken for its own", reply)
			}
		}
		c.answer("in.$", outcome{})
		c.answer("in.zzzzzzzzzzzzzzzzzzzz", outcome{})
		if o := c.await(second); string(o.ack) != "2" {
			t.Errorf("answered with %+v", o)
		}
		if o := c.await(first); o.refused == nil || o.refused.Reason != Overloaded || time.Since(start) > 2500*time.Millisecond {
			t.Errorf("after %v: %+v", time.Since(start), o)
		}
		c.answer(one, outcome{ack: []byte("late")})
		third, three := c.enter(now())
		c.answer(one, outcome{ack: []byte("late")})
		c.answer(three, outcome{ack: []byte("3")})
		if o := c.await(third); string(o.ack) != "3" {
			t.Errorf("it got another's answer: %+v", o)
		}

		early := c.relay("_R_.a", 1)
		c.relay("_R_.b", 1)
		gone := c.relay("_R_.c", 1)
		c.relay("_R_.d", now())
		c.answer(early, outcome{ack: []byte("a")})
		c.forget(gone)
		c.giveUp(2)
		if len(passed) != 2 || string(passed["_R_.a"].ack) != "a" || passed["_R_.b"].refused == nil || c.none() {
			t.Errorf("passed on: %v", passed)
		}
		c.giveUp(now() + 1)
		if len(passed) != 3 || !c.none() {
			t.Errorf("passed on: %v", passed)
		}
		time.Sleep(time.Minute) // the timer has ended: the bubble would not, otherwise
	})
}
