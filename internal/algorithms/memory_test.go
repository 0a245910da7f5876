//go:build !race

package algorithms

import (
	"fmt"
	"runtime"
	"testing"
	"time"
)

// A key costs at most 40 bytes beside its own, also once most have left.
func TestMemoryOfAMillionKeys(t *testing.T) {
	if testing.Short() {
		t.Skip("a million keys")
	}
	const keys = 1_000_000
	before := heapInUse()
	k := mustKeyed(t, "token-bucket:1000/s,burst=1000000", 2*keys)
	measure := func(when string, keys, length int) {
		t.Helper()
		beyond := float64(heapInUse()-before-int64(keys*length)) / float64(keys)
		t.Logf("%s: %.1f bytes a key beyond its own %d", when, beyond, length)
		if beyond > 40 {
			t.Errorf("%s: %.1f bytes a key, at most 40", when, beyond)
		}
	}
	fill := func(length int, now int64) {
		t.Helper()
		want := k.Len() + keys
		for i := range keys {
			k.Take(fmt.Sprintf("key-%0*d", length-4, i), now, 1_000_000) // full again after 1000 s
		}
		if k.Len() != want {
			t.Fatalf("%d keys, want %d", k.Len(), want)
		}
	}
	fill(20, 0)
	measure("a million", keys, 20)
	fill(23, 500e9)
	k.Sweep(1001e9, shardCount)
	if k.Len() != keys {
		t.Fatalf("%d keys after a sweep, want %d", k.Len(), keys)
	}
	measure("a second million, the first one gone", keys, 23)
	k.Sweep(1501e9, shardCount)
	if left := heapInUse() - before; k.Len() != 0 || left > 100<<10 {
		t.Errorf("%d keys and %d bytes are left", k.Len(), left)
	}
	runtime.KeepAlive(k)
}

// What a log remembers is given back with its key, and by what the last period no
// longer holds.
func TestMemoryOfLogs(t *testing.T) {
	k := mustKeyed(t, "sliding-window-log:1000000/s", 100_000)
	before := heapInUse()
	for round := range int64(5) {
		for i := range 200 {
			for at := range int64(500) {
				k.Take(fmt.Sprint(i), round*10e9+at, 1)
			}
		}
		if round == 0 {
			t.Logf("%.1f bytes a request", float64(heapInUse()-before)/(200*500))
		}
		k.Sweep(round*10e9+5e9, shardCount)
	}
	if left := heapInUse() - before; k.Len() != 0 || left > 64<<10 {
		t.Errorf("%d keys and %d bytes are left", k.Len(), left)
	}
	runtime.KeepAlive(k)
}

// On the way nothing is allocated: neither by what passes nor by what is refused, with
// every algorithm, on its own and as a key.
func TestDecisionsDoNotAllocate(t *testing.T) {
	clock := mustClock(t, Rate{200, time.Second}, 5*time.Millisecond)
	meter := NewMeter(10*time.Second, 10)
	var now int64
	calls := map[string]func(){
		"DepartureClock": func() { now += int64(clock.Wait(now)); clock.Depart(now, 1) },
		"Meter":          func() { meter.Add(now, 1); meter.PerSecond(now) },
	}
	for _, rules := range append(Names(), "all") {
		text := rules + ":500/s"
		if rules == "all" {
			text = ""
			for _, name := range Names() {
				text += name + ":1000/s;"
			}
			text = text[:len(text)-1]
		} else {
			l := mustNew(t, mustRule(t, text))
			calls[text] = func() { _, _ = l.Peek(now, 1); _, _ = l.Take(now, 1); _, _ = l.Take(now, 5000) }
		}
		k := mustKeyed(t, text, 10)
		calls[text+", a key"] = func() { k.Peek(theKey, now, 1); k.Take(theKey, now, 1); k.Take(theKey, now, 5000) }
	}
	for name, f := range calls {
		// Some are admitted, some refused; the second is long enough for what is
		// allocated now and then to be seen, too.
		step := func() { now += 1e6; f() }
		for range 5000 {
			step()
		}
		var from, to runtime.MemStats
		runtime.ReadMemStats(&from)
		for range 20_000 {
			step()
		}
		runtime.ReadMemStats(&to)
		if n := to.Mallocs - from.Mallocs; n > 20 { // the runtime's own
			t.Errorf("%s: %d allocations in 20,000 steps", name, n)
		}
	}
}
