package main

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// That each limits is what makes their times comparable.

var five = quota{5, time.Hour}

func TestSinglesAdmitABurstAndNoMore(t *testing.T) {
	for _, s := range singles {
		t.Run(s.name, func(t *testing.T) {
			if s.admits == 0 {
				t.Skip("it waits and refuses none")
			}
			decide, err := s.make(five)
			if err != nil {
				t.Fatal(err)
			}
			for i := range 50 {
				if want := i < s.admits; (decide(1) == 1) != want {
					t.Fatalf("decision %d: admitted is %v", i+1, !want)
				}
			}
		})
	}
}

func TestSinglesAdmitABurstOnceAmongMany(t *testing.T) {
	for _, s := range singles {
		t.Run(s.name, func(t *testing.T) {
			if s.admits == 0 {
				t.Skip("it waits and refuses none")
			}
			decide, err := s.make(quota{5000, time.Hour})
			if err != nil {
				t.Fatal(err)
			}
			want := int64(5000)
			if s.admits == 1 {
				want = 1
			}
			var admitted atomic.Int64
			var done sync.WaitGroup
			for range 8 {
				done.Go(func() { admitted.Add(int64(decide(2000))) })
			}
			done.Wait()
			// throttled gives up after ten tries, which is no admission.
			if got := admitted.Load(); got > want || got < want*9/10 {
				t.Errorf("%d admitted, want %d", got, want)
			}
		})
	}
}

func TestSinglesAdmitAllOfPlenty(t *testing.T) {
	for _, s := range singles {
		decide, err := s.make(plenty)
		if err != nil {
			t.Fatalf("%s: %v", s.name, err)
		}
		if n := decide(10_000); n != 10_000 {
			t.Errorf("%s admitted %d of 10,000", s.name, n)
		}
	}
}

func TestTheOneThatWaitsKeepsItsRate(t *testing.T) {
	for _, s := range singles {
		if s.admits != 0 {
			continue
		}
		decide, err := s.make(quota{1, 2 * time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		decide(40)
		// It may give its slack of ten at once.
		if took := time.Since(start); took < 29*2*time.Millisecond {
			t.Errorf("%s: 40 at one in 2 ms took %s", s.name, took)
		}
	}
}

func TestStoresAdmitABurstOfEachKeyAndNoMore(t *testing.T) {
	keys := names(300)
	for _, s := range stores {
		t.Run(s.name, func(t *testing.T) {
			decide, stop, err := s.make(five, len(keys))
			if err != nil {
				t.Fatal(err)
			}
			defer stop()
			for i := range 20 {
				want := 0
				if i < s.admits {
					want = len(keys)
				}
				// The key is the same by its bytes, not by its place.
				if n := decide(names(len(keys))); n != want {
					t.Fatalf("turn %d: %d admitted, want %d", i+1, n, want)
				}
			}
			if n := decide([]string{"another", keys[7]}); n != 1 {
				t.Errorf("a new key and a spent one: %d admitted, want 1", n)
			}
		})
	}
}

func TestReservationsTakeFromAllOrNone(t *testing.T) {
	decide := reservations(five, 3)
	admitted := 0
	for range 20 {
		admitted += decide([]string{"key"})
	}
	if admitted != 5 {
		t.Errorf("%d admitted, want 5", admitted)
	}
}

// A store that keeps its keys' bytes takes more for longer keys.
func TestStoresKeepTheirKeysAsTheySay(t *testing.T) {
	const keys, longer = 20_000, 96
	tail := string(make([]byte, longer))
	for _, s := range stores {
		short, err := s.bytes(keys, name)
		if err != nil {
			t.Fatal(err)
		}
		long, err := s.bytes(keys, func(i int) string { return name(i) + tail })
		if err != nil {
			t.Fatal(err)
		}
		if kept := long-short > longer/2; kept != s.keeps {
			t.Errorf("%s: %.1f bytes a key, %.1f if each is %d longer; it says that it keeps them: %v", s.name, short, long, longer, s.keeps)
		}
	}
}

func TestOursDoNotAllocateOnAHit(t *testing.T) {
	s, err := newStore(lasting.rule(), 2000)
	if err != nil {
		t.Fatal(err)
	}
	keys := names(1000)
	s.decide(keys)
	if n := testing.AllocsPerRun(20, func() { s.decide(keys) }); n != 0 {
		t.Errorf("%g allocations in 1,000 decisions", n)
	}
}
