package trial

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/flowgate/flowgate/internal/arrivals"
	"github.com/flowgate/flowgate/internal/fragile"
	"github.com/flowgate/flowgate/loadtest/database"
	"github.com/flowgate/flowgate/loadtest/scenario"
)

func of(rate float64, burst int, faults ...scenario.Fault) *scenario.Scenario {
	return &scenario.Scenario{
		For: scenario.Duration(10 * time.Second), Faults: faults,
		Arrivals: arrivals.Pattern{Groups: []arrivals.Group{{Tenant: "acme", Spacing: arrivals.Even, Phases: []arrivals.Phase{{For: time.Hour, From: rate, To: rate, Burst: burst}}}}},
		Database: fragile.Config{Latency: 20 * time.Millisecond, Knee: 8, Thrash: 1, CrashAt: 64, Recovery: 2 * time.Second},
	}
}

func TestDirect(t *testing.T) {
	for _, c := range []struct {
		name     string
		s        *scenario.Scenario
		all      bool // or none is done
		crashes  uint64
		failures bool
	}{
		{"below the knee all is done", of(100, 0), true, 0, false},
		{"a burst brings it down, and the repeats again and again", of(0, 200), false, 6, true},
		{"a short stop", of(20, 0, scenario.Fault{At: scenario.Duration(3 * time.Second), What: scenario.DatabaseStops}, scenario.Fault{At: scenario.Duration(4 * time.Second), What: scenario.DatabaseReturns}), true, 0, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			side, err := direct(t.Context(), c.s, 11*time.Second)
			if err != nil {
				t.Fatal(err)
			}
			done, failed := 0, side.Failed
			for _, d := range side.Record.Deliveries {
				if d.Done {
					done++
				} else {
					failed++
				}
			}
			last := side.Health[len(side.Health)-1].Database.Counts
			want := 0
			if c.all {
				want = len(side.Record.Messages)
			}
			if done != want || last.Crashes != c.crashes || failed > 0 != c.failures {
				t.Errorf("%d done, %d calls failed, %d crashes; want %d done, %d crashes, failures: %t", done, failed, last.Crashes, want, c.crashes, c.failures)
			}
			if len(side.Health) != 111 {
				t.Errorf("%d samples of 11 s", len(side.Health))
			}
		})
	}
}

// The run without flowgate is computed with the model by itself; in real time the same calls
// come to the same.
func TestDirectIsWhatRealTimeGives(t *testing.T) {
	s := of(300, 0)
	s.Database.Noise = 0.3
	side, err := direct(t.Context(), s, 12*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		db, err := database.New(s.Database)
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		ends := make(chan time.Duration, len(side.Record.Messages))
		for a := range s.Arrivals.Schedule(10 * time.Second) {
			time.Sleep(a.At - time.Since(began))
			go func() {
				if err := db.Do(t.Context()); err == nil {
					ends <- time.Since(began)
				}
			}()
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		i := 0
		for _, d := range side.Record.Deliveries {
			if !d.Done {
				continue
			}
			i++
			select {
			case at := <-ends:
				if off := at - time.Duration(d.Ended); off < -time.Microsecond || off > time.Microsecond {
					t.Fatalf("call %d ended at %s, computed %s", i, at, time.Duration(d.Ended))
				}
			default:
				t.Fatalf("%d calls ended in real time, computed %d", i-1, len(side.Record.Deliveries))
			}
		}
	})
}

func TestLeaksFindGrowth(t *testing.T) {
	run := func(grow func(i int, s *Sample)) []Sample {
		var samples []Sample
		for i := range 100 {
			s := Sample{At: time.Duration(i) * time.Second, Process: 1, RSS: 50 << 20, Goroutines: 100, Files: 20, Keys: 5}
			if i == 70 { // a peak is none
				s.Goroutines, s.RSS = 500, 200<<20
			}
			grow(i, &s)
			samples = append(samples, s)
		}
		return samples
	}
	for name, c := range map[string]struct {
		grow  func(i int, s *Sample)
		found bool
	}{
		"flat":                   {func(int, *Sample) {}, false},
		"memory":                 {func(i int, s *Sample) { s.RSS += float64(i) * (1 << 20) }, true},
		"goroutines":             {func(i int, s *Sample) { s.Goroutines += i / 4 }, true},
		"files":                  {func(i int, s *Sample) { s.Files += i / 4 }, true},
		"keys":                   {func(i int, s *Sample) { s.Keys += i }, true},
		"a new one, not growing": {func(i int, s *Sample) { s.Process = 1 + i/60; s.Goroutines += 50 * (s.Process - 1) }, false},
		"too short":              {func(i int, s *Sample) { s.Process = i / 10 }, true},
	} {
		if got := leaks(run(c.grow)); got.OK() == c.found {
			t.Errorf("%s: %s %q", name, got.Found, got.Broken)
		}
	}
}

func TestCrashesAreCounted(t *testing.T) {
	var health []Sample
	for i := range 10 {
		s := Sample{At: time.Duration(i) * time.Second}
		s.Database.Counts.Crashes = uint64(i / 4)
		health = append(health, s)
	}
	if c := crashes(health, 2); !c.OK() {
		t.Errorf("%q", c.Broken)
	}
	if c := crashes(health, 1); c.OK() || c.Broken[0] != "crash 2 within 100 ms before 8s" {
		t.Errorf("%q", c.Broken)
	}
}
