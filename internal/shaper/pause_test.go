package shaper

import (
	"context"
	"encoding/json"
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/flowgate/flowgate/internal/bubble"
	"github.com/flowgate/flowgate/internal/consumers"
)

// paused is a shaper at work with a backlog, and its log.
type paused struct {
	*running
	rig *rig
	log *bubble.Log
}

func pausable(r *rig, change func(*Deps)) paused {
	p := paused{rig: r, log: &bubble.Log{}}
	p.running = r.run(config(), func(d *Deps) {
		d.Logger = p.log.Logger(slog.LevelInfo)
		if change != nil {
			change(d)
		}
	})
	return p
}

func (p paused) hold(pause Pause) (now Pause, was *Pause) {
	p.rig.t.Helper()
	now, was, err := p.Pause(p.rig.t.Context(), pause)
	if err != nil {
		p.rig.t.Fatal(err)
	}
	return now, was
}

func (p paused) resume() *Pause {
	p.rig.t.Helper()
	was, err := p.Resume(p.rig.t.Context(), "bob", "fixed")
	if err != nil {
		p.rig.t.Fatal(err)
	}
	return was
}

func (p paused) said(words string, times int) {
	p.rig.t.Helper()
	if n := strings.Count(p.log.String(), words); n != times {
		p.rig.t.Errorf("%q is logged %d times, want %d:\n%s", words, n, times, p.log)
	}
}

func (r *rig) state() jetstream.KeyValue {
	r.t.Helper()
	kv, err := r.js.KeyValue(r.t.Context(), "FLOWGATE_STATE")
	if err != nil {
		r.t.Fatal(err)
	}
	return kv
}

// foreign writes the pause past the gateway, as `nats kv put` does.
func (r *rig) foreign(value string) {
	r.t.Helper()
	if _, err := r.state().PutString(r.t.Context(), pauseKey, value); err != nil {
		r.t.Fatal(err)
	}
}

// starts says how many deliveries there were.
func (r *rig) starts(want int) {
	r.t.Helper()
	synctest.Wait()
	if n := len(r.destination.log()); n != want {
		r.t.Errorf("%d deliveries, want %d", n, want)
	}
}

// No delivery starts once the pause is known; what is in flight ends, and what comes
// after it keeps the pace.
func TestPauseAndResume(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.publish("acme", 40)
		r.destination.takes = 300 * time.Millisecond
		s := pausable(r, nil)
		time.Sleep(time.Second)
		now, was := s.hold(Pause{Reason: "index build", Author: "ann"})
		if was != nil || now.Author != "ann" || !now.Until.IsZero() || time.Since(now.Since) > time.Second {
			t.Errorf("%+v, before %v", now, was)
		}
		n := len(r.destination.log())
		time.Sleep(time.Second)
		if _, inFlight, _, drained := r.backlog.state(); inFlight != 0 || drained != uint64(n) {
			t.Errorf("%d in flight and %d of %d done a second into the pause", inFlight, drained, n)
		}
		time.Sleep(10 * time.Minute)
		r.starts(n)
		if p, ok := s.Paused(); !ok || p != now {
			t.Errorf("%+v, %t; want %+v", p, ok, now)
		}

		// A second one changes what it says, not since when.
		until := time.Now().Add(time.Hour).UTC()
		again, was := s.hold(Pause{Until: until, Reason: "longer", Author: "bob"})
		if was == nil || *was != now || again.Since != now.Since || again.Author != "bob" || !again.Until.Equal(until) {
			t.Errorf("%+v, before %+v", again, was)
		}
		r.starts(n)

		resumed := time.Now()
		if was := s.resume(); was == nil || *was != again {
			t.Errorf("resumed from %+v", was)
		}
		if _, ok := s.Paused(); ok {
			t.Error("still paused")
		}
		time.Sleep(6 * time.Second)
		log := r.destination.log()
		conforms(t, log, 40, config().Rate)
		for i := n + 1; i < len(log); i++ {
			if gap := log[i].at.Sub(log[i-1].at); gap < 95*time.Millisecond {
				t.Errorf("delivery %d came %s after the one before", i, gap)
			}
		}
		if late := log[n].at.Sub(resumed); late > 100*time.Millisecond {
			t.Errorf("the first came %s after the end of the pause", late)
		}
		if was := s.resume(); was != nil {
			t.Errorf("resumed twice: %+v", was)
		}
		s.said("deliveries are paused", 2)
		s.said(`author=ann reason="index build"`, 1)
		s.said("deliveries are resumed", 1)
		s.said("author=bob reason=fixed", 1)
	})
}

// It ends by itself, by the time of day, and leaves nothing behind.
func TestAPauseEndsByItself(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := newRig(t)
		s := pausable(r, nil)
		time.Sleep(time.Second)
		until := time.Now().Add(10 * time.Minute)
		s.hold(Pause{Until: until, Author: "ann"})
		r.publish("acme", 30)
		time.Sleep(10*time.Minute - time.Millisecond)
		r.starts(0)
		time.Sleep(5 * time.Second)
		log := r.destination.log()
		conforms(t, log, 30, config().Rate)
		if late := log[0].at.Sub(until); late < 0 || late > 100*time.Millisecond {
			t.Errorf("the first came %s after the pause's end", late)
		}
		s.said("the pause ended at its time", 1)
		s.said("deliveries are resumed", 1) // the same line
		if _, err := r.state().Get(t.Context(), pauseKey); err != jetstream.ErrKeyNotFound {
			t.Errorf("the pause is still stored: %v", err)
		}
		if was := s.resume(); was != nil {
			t.Errorf("resumed from %+v", was)
		}
		// One whose end has passed holds nothing.
		s.hold(Pause{Until: time.Now().Add(-time.Second)})
		r.publish("acme", 1)
		time.Sleep(time.Second)
		r.starts(31)
	})
}

// The end is one of the time of day, which may be set while the pause lasts; the
// sleep until then is short enough to notice.
func TestAPauseWhoseClockIsSet(t *testing.T) {
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	g := newPauseGate()
	g.now = func() time.Time { return now }
	g.set(&pauseState{on: true, Pause: Pause{Until: now.Add(time.Hour)}})
	for _, c := range []struct {
		step time.Duration
		wait time.Duration // 0: not paused
	}{
		{0, time.Second}, {59 * time.Minute, time.Second}, {-24 * time.Hour, time.Second},
		{24*time.Hour + 59900*time.Millisecond, 100 * time.Millisecond}, {time.Hour, 0},
	} {
		now = now.Add(c.step)
		wait, paused := g.wait()
		if wait != c.wait || paused != (c.wait > 0) {
			t.Errorf("at %s: wait %s, paused %t; want %s", now, wait, paused, c.wait)
		}
		if in := g.enter(); in == paused {
			t.Errorf("at %s: a delivery may start: %t", now, in)
		} else if in {
			g.leave()
		}
	}
}

// A retry is a delivery too.
func TestAPauseHoldsRetries(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.destination.outcome = func(consumers.Delivery) consumers.Outcome {
			return consumers.Outcome{Action: consumers.Later, Delay: time.Second, Counted: true}
		}
		r.publish("acme", 1)
		s := pausable(r, nil)
		time.Sleep(1500 * time.Millisecond)
		r.starts(2)
		s.hold(Pause{})
		time.Sleep(time.Minute)
		r.starts(2)
		r.destination.set(func(d *destination) { d.outcome = done })
		s.resume()
		time.Sleep(time.Second)
		r.starts(3)
	})
}

// A restart, or another gateway that takes over, goes on with it; also when it ended
// meanwhile.
func TestAPauseSurvivesARestart(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.publish("acme", 10)
		first := pausable(r, nil)
		first.hold(Pause{Until: time.Now().Add(time.Hour), Author: "ann", Reason: "migration"})
		before := len(r.destination.log())
		want, _ := first.Paused()
		if err := first.stop(); err != nil {
			t.Fatal(err)
		}
		second := pausable(r, nil)
		time.Sleep(30 * time.Minute)
		r.starts(before)
		if p, ok := second.Paused(); !ok || p != want {
			t.Errorf("after a restart: %+v, %t; want %+v", p, ok, want)
		}
		second.said("author=ann reason=migration", 1)
		if err := second.stop(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		third := pausable(r, nil)
		time.Sleep(3 * time.Second)
		r.starts(10)
		third.said("deliveries are paused", 0)
		if _, err := r.state().Get(t.Context(), pauseKey); err != jetstream.ErrKeyNotFound {
			t.Errorf("the pause is still stored: %v", err)
		}
	})
}

// Whoever writes to the bucket is heard at once.
func TestAPauseWrittenByOthers(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := newRig(t)
		s := pausable(r, nil)
		r.foreign(`{"v":1,"reason":"by hand","of a later version":true}`)
		synctest.Wait()
		if p, ok := s.Paused(); !ok || p.Reason != "by hand" || !p.Since.Equal(time.Now()) {
			t.Errorf("%+v, %t", p, ok)
		}
		r.publish("acme", 5)
		time.Sleep(time.Minute)
		r.starts(0)
		for _, remove := range []func() error{
			func() error { return r.state().Delete(t.Context(), pauseKey) },
			func() error { return r.state().Purge(t.Context(), pauseKey) },
		} {
			if err := remove(); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
			r.starts(5)
			r.foreign(`{"v":1}`)
		}
		synctest.Wait()
		if _, ok := s.Paused(); !ok {
			t.Error("not paused")
		}
	})
}

// What cannot be read was put there by somebody who wanted a pause.
func TestWhatAStoredPauseSays(t *testing.T) {
	created := time.Date(2026, 3, 1, 6, 0, 0, 0, time.UTC)
	since, until := created.Add(-time.Hour), created.Add(time.Hour)
	unread := Pause{Since: created, Reason: "the stored pause cannot be read; resume removes it"}
	for _, c := range []struct {
		value string
		want  Pause
		says  string // empty: it is well
	}{
		{`{"v":1}`, Pause{Since: created}, ""},
		{`{"v":1,"until":null,"of a later version":[1]}`, Pause{Since: created}, ""},
		{`{"v":1,"since":"2026-03-01T05:00:00Z","until":"2026-03-01T07:00:00Z","reason":"x","author":"y"}`, Pause{since, until, "x", "y"}, ""},
		{"yes", unread, "invalid character"},
		{"", unread, "unexpected end"},
		{"[1]", unread, "cannot unmarshal"},
		{`{"reason":"x"}`, unread, "v: 0 is not the version 1"},
		{`{"v":2}`, unread, "v: 2 is not the version 1"},
		{`{"v":1,"until":"tomorrow"}`, unread, "tomorrow"},
		{`{"v":1,"reason":"` + strings.Repeat("x", maxPauseReason+1) + `"}`, unread, "reason: 501 bytes"},
		{`{"v":1,"author":"a\nb"}`, unread, "author:"},
	} {
		got, err := readPause([]byte(c.value), created)
		if got != c.want || (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("%.60s: %+v, %v; want %+v, %s", c.value, got, err, c.want, c.says)
		}
	}
}

// It holds until somebody resumes.
func TestAStoredPauseThatCannotBeRead(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := newRig(t)
		s := pausable(r, nil)
		time.Sleep(time.Second)
		r.foreign("yes")
		synctest.Wait()
		r.publish("acme", 3)
		time.Sleep(5 * time.Minute)
		r.starts(0)
		if p, ok := s.Paused(); !ok || !strings.Contains(p.Reason, "cannot be read") {
			t.Errorf("%+v, %t", p, ok)
		}
		s.said("the stored pause cannot be read", 1)
		if err := s.stop(); err != nil {
			t.Fatal(err)
		}
		// Nor does a restart deliver.
		s = pausable(r, nil)
		time.Sleep(time.Minute)
		r.starts(0)
		s.said("the stored pause cannot be read", 1)
		if was := s.resume(); was == nil {
			t.Error("it was not paused")
		}
		time.Sleep(time.Second)
		r.starts(3)
	})
}

// A watcher that falls silent without a word is found out.
func TestAPauseThatTheWatcherDidNotTell(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := newRig(t)
		s := pausable(r, nil)
		time.Sleep(time.Second)
		silence := func() {
			stream, err := r.js.Stream(t.Context(), "KV_FLOWGATE_STATE")
			if err != nil {
				t.Fatal(err)
			}
			names := stream.ConsumerNames(t.Context())
			for name := range names.Name() {
				if err := stream.DeleteConsumer(t.Context(), name); err != nil {
					t.Fatal(err)
				}
			}
		}
		silence()
		r.foreign(`{"v":1}`)
		time.Sleep(time.Minute)
		if _, ok := s.Paused(); !ok {
			t.Error("a pause was not heard of")
		}
		silence()
		if err := r.state().Delete(t.Context(), pauseKey); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if _, ok := s.Paused(); ok {
			t.Error("its end was not heard of")
		}
		s.hold(Pause{})
		s.resume()
	})
}

// Once the change is known no delivery starts, whatever the dispatcher does at that
// moment.
func TestNoDeliveryStartsOnceThePauseIsKnown(t *testing.T) {
	g := newPauseGate()
	var known atomic.Bool
	stop := make(chan struct{})
	var dispatchers sync.WaitGroup
	for range 2 {
		dispatchers.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if !g.enter() {
					continue
				}
				if known.Load() {
					t.Error("a delivery starts while it is known to be paused")
				}
				runtime.Gosched()
				if known.Load() {
					t.Error("the pause is known while a delivery starts")
				}
				g.leave()
			}
		})
	}
	for range 2000 {
		g.set(&pauseState{on: true})
		known.Store(true)
		runtime.Gosched()
		known.Store(false)
		g.set(&pauseState{})
	}
	close(stop)
	dispatchers.Wait()
}

// Changes that cross each other end in what was said last.
func TestPausesThatCross(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := newRig(t)
		s := pausable(r, nil)
		for range 20 {
			var failed [4]chan error
			for i := range failed {
				failed[i] = make(chan error, 1)
				go func() {
					var err error
					if i%2 == 0 {
						_, _, err = s.Pause(t.Context(), Pause{})
					} else {
						_, err = s.Resume(t.Context(), "", "")
					}
					failed[i] <- err
				}()
			}
			for i := range failed {
				if err := <-failed[i]; err != nil {
					t.Error(err)
				}
			}
			s.resume()
			if _, ok := s.Paused(); ok {
				t.Fatal("paused after the last resume")
			}
		}
	})
}

// A change that is not heard of is told so, and not waited for for ever.
func TestAPauseWhileTheGatewayEnds(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := newRig(t)
		s := pausable(r, nil)
		time.Sleep(time.Second)
		if err := s.stop(); err != nil {
			t.Fatal(err)
		}
		if _, _, err := s.Pause(t.Context(), Pause{}); err == nil || !strings.Contains(err.Error(), "is stored, and not known to hold yet: the gateway is shutting down") {
			t.Errorf("%v", err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		r.server.Shutdown()
		if _, _, err := s.Pause(ctx, Pause{}); err == nil {
			t.Error("paused without a broker")
		}
	})
}

// The form of the stored value is public.
func TestTheStoredPause(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := newRig(t)
		s := pausable(r, nil)
		until := time.Date(2100, 1, 2, 3, 4, 5, 0, time.UTC)
		s.hold(Pause{Until: until, Reason: "why", Author: "ann"})
		e, err := r.state().Get(t.Context(), pauseKey)
		if err != nil {
			t.Fatal(err)
		}
		var got map[string]any
		if err := json.Unmarshal(e.Value(), &got); err != nil {
			t.Fatal(err)
		}
		if since, err := time.Parse(time.RFC3339, got["since"].(string)); err != nil || time.Since(since) > time.Second {
			t.Errorf("since %v", got["since"])
		}
		if len(got) != 5 || got["v"] != 1.0 || got["until"] != "2100-01-02T03:04:05Z" || got["reason"] != "why" || got["author"] != "ann" {
			t.Errorf("%s", e.Value())
		}
	})
}

func TestAPauseIsChecked(t *testing.T) {
	for _, c := range []struct {
		pause Pause
		says  string
	}{
		{Pause{}, ""},
		{Pause{Reason: "größe 🐟", Author: "ann"}, ""},
		{Pause{Reason: "a\nb"}, "reason:"},
		{Pause{Author: strings.Repeat("x", 101)}, "author: 101 bytes"},
		{Pause{Author: "\xff"}, "is not UTF-8"},
		{Pause{Until: time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC)}, "the year 10000"},
	} {
		err := c.pause.Validate()
		if (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("%+v: %v, want %q", c.pause, err, c.says)
		}
	}
}
