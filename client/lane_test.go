package client

import (
	"fmt"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// line is a lane under test and who went when.
type line struct {
	*lanes
	mu   sync.Mutex
	went []string
}

const limit = "token-bucket:10/s"

var acme = laneKey{"tenant", "acme"}

// watch notes when t goes.
func (l *line) watch(name string, t *ticket) {
	began, ready := time.Now(), t.ready
	go func() {
		<-ready
		l.mu.Lock()
		defer l.mu.Unlock()
		l.went = append(l.went, fmt.Sprintf("%s at %d", name, time.Since(began).Milliseconds()))
	}()
}

func (l *line) expect(t *testing.T, want ...string) {
	t.Helper()
	synctest.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	if !slices.Equal(l.went, want) {
		t.Errorf("went %q\nwant %q", l.went, want)
	}
}

// One by one at the limit's pace after the hint, in order, by what they cost; who gives
// up leaves no gap, and who comes later stands behind.
func TestLane(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &line{lanes: newLanes()}
		var tickets []*ticket
		for i, cost := range []float64{1, 1, 1, 5, 1} {
			k := l.ticket(cost)
			tickets = append(tickets, k)
			l.refused(acme, k, limit, 100*time.Millisecond, time.Now())
			if i != 1 { // that one gives up
				l.watch(strconv.Itoa(i), k)
			}
		}
		late := l.ticket(1)
		if !l.join(acme, late, time.Now()) {
			t.Error("a newcomer passes those who wait")
		}
		l.watch("late", late)
		if l.join(laneKey{"tenant", "globex"}, l.ticket(1), time.Now()) {
			t.Error("another tenant waits")
		}
		l.leave(acme, tickets[1])
		time.Sleep(5 * time.Second)
		l.expect(t, "0 at 100", "2 at 200", "3 at 700", "4 at 800", "late at 900")
		if l.join(acme, l.ticket(1), time.Now()) {
			t.Error("it waits in a lane that stands open")
		}
		if len(l.byKey) != 0 {
			t.Error("an open lane is kept")
		}
	})
}

// Who was refused from the line stands where it stood, and the line goes slower, until
// it is well again.
func TestLaneOfALimitThatIsShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &line{lanes: newLanes()}
		a, b := l.ticket(1), l.ticket(1)
		l.refused(acme, a, limit, 100*time.Millisecond, time.Now())
		l.refused(acme, b, limit, 100*time.Millisecond, time.Now())
		time.Sleep(100 * time.Millisecond)
		<-a.ready
		l.refused(acme, a, limit, 10*time.Millisecond, time.Now())
		if s := l.byKey[acme].stretch; s <= 1 {
			t.Errorf("stretch %f", s)
		}
		l.watch("a", a)
		l.watch("b", b)
		time.Sleep(time.Second)
		synctest.Wait()
		if len(l.went) != 2 || l.went[0][0] != 'a' {
			t.Errorf("went %q", l.went)
		}
		for range 10 {
			l.admitted(a)
		}
		if s := l.byKey[acme].stretch; s != 1 {
			t.Errorf("stretch %f", s)
		}
	})
}

// A lane asks after 30 s whether the limit is still what it was, and lets all go if not.
func TestLaneOfALimitThatWasRaised(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &line{lanes: newLanes()}
		var tickets []*ticket
		for range 100 {
			k := l.ticket(1)
			tickets = append(tickets, k)
			l.refused(acme, k, "gcra:1/h", time.Second, time.Now())
		}
		time.Sleep(time.Second)
		<-tickets[0].ready
		l.admitted(tickets[0])
		time.Sleep(29 * time.Second)
		select {
		case <-tickets[1].ready:
			t.Error("it asks too early")
		default:
		}
		time.Sleep(time.Second)
		<-tickets[1].ready
		l.admitted(tickets[1])
		for _, k := range tickets {
			<-k.ready
		}
	})
}

// What is kept of tenants that were refused once goes.
func TestLanesAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLanes()
		for i := range 100_000 {
			l.refused(laneKey{"tenant", strconv.Itoa(i)}, l.ticket(1), limit, time.Millisecond, time.Now())
			time.Sleep(time.Millisecond)
		}
		if n := len(l.byKey); n > 2*sweepFrom {
			t.Errorf("%d lanes are kept", n)
		}
	})
}

// Closing lets everyone go, and whoever comes after.
func TestLanesClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLanes()
		a, b := l.ticket(1), l.ticket(1)
		l.refused(acme, a, limit, time.Hour, time.Now())
		l.close()
		<-a.ready
		l.refused(acme, b, limit, time.Hour, time.Now())
		<-b.ready
	})
}

func TestConfig(t *testing.T) {
	for _, bad := range []Config{{Prefix: "a b"}, {Prefix: "a..b"}, {Prefix: ".a"}, {Name: "x.>"}, {MaxInFlight: -1}, {TryTimeout: -1}} {
		if bad.Validate() == nil {
			t.Errorf("%+v passes", bad)
		}
	}
	if err := (Config{Prefix: "in.gate"}).Validate(); err != nil {
		t.Error(err)
	}
}
