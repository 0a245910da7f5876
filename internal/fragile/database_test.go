package fragile

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"
	"pgregory.net/rapid"
)

const (
	ms     = int64(time.Millisecond)
	second = int64(time.Second)
)

// sturdy has a knee, and no crash: capacity 400/s.
var sturdy = Config{Latency: 20 * time.Millisecond, Knee: 8, Thrash: 1}

func open(t *testing.T, cfg Config) *Database {
	t.Helper()
	d, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	d.Advance(0)
	return d
}

func start(t *testing.T, d *Database, now int64) uint64 {
	t.Helper()
	id, err := d.Start(now)
	if err != nil {
		t.Fatalf("at %s: %v", time.Duration(now), err)
	}
	return id
}

// throughput keeps so many in flight for so long and tells how many a second are done.
func throughput(t *testing.T, d *Database, inFlight int, length time.Duration) float64 {
	t.Helper()
	for range inFlight {
		start(t, d, 0)
	}
	done := 0
	for {
		at, ok := d.Next()
		if !ok || at > int64(length) {
			return float64(done) / length.Seconds()
		}
		for range d.Advance(at) {
			done++
			start(t, d, at)
		}
	}
}

// Up to the knee more in flight get more done; past it less is done the more there are.
func TestThroughputHasAKneeAndCollapses(t *testing.T) {
	for _, c := range []struct {
		thrash   float64
		inFlight int
		want     float64 // a second
	}{
		{1, 1, 50}, {1, 4, 200}, {1, 8, 400}, {1, 16, 200}, {1, 32, 100}, {1, 64, 50},
		{0, 4, 200}, {0, 8, 400}, {0, 64, 400},
		{2, 8, 400}, {2, 16, 100}, {2, 32, 25},
	} {
		cfg := sturdy
		cfg.Thrash = c.thrash
		if got := throughput(t, open(t, cfg), c.inFlight, 200*time.Second); math.Abs(got-c.want) > 0.02*c.want {
			t.Errorf("thrash %g, %d in flight: %g/s, want %g/s", c.thrash, c.inFlight, got, c.want)
		}
	}
	if got := sturdy.Capacity(); got != 400 {
		t.Errorf("capacity %g", got)
	}
}

func TestNoiseLeavesTheCapacity(t *testing.T) {
	cfg := sturdy
	cfg.Noise = 0.5
	one, again := throughput(t, open(t, cfg), 8, 100*time.Second), throughput(t, open(t, cfg), 8, 100*time.Second)
	if math.Abs(one-400) > 12 {
		t.Errorf("%g/s", one)
	}
	if one != again {
		t.Errorf("the same seed gave %g/s and %g/s", one, again)
	}
	cfg.Seed = 1
	if other := throughput(t, open(t, cfg), 8, 100*time.Second); other == one {
		t.Errorf("another seed gave the same %g/s", other)
	}
}

// Those in flight share the machine: one that joins slows those that are there.
func TestStatementsSlowEachOther(t *testing.T) {
	d := open(t, Config{Latency: 10 * time.Millisecond, Knee: 1})
	a := start(t, d, 0)
	b := start(t, d, 5*ms) // a has done half; from here both go at half the speed
	var got []Outcome
	for at, ok := d.Next(); ok; at, ok = d.Next() {
		got = append(got, d.Advance(at)...)
	}
	want := []Outcome{{a, 15 * ms, nil}, {b, 20 * ms, nil}}
	if !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

func TestCancelledStatementsLeaveRoom(t *testing.T) {
	d := open(t, Config{Latency: 10 * time.Millisecond, Knee: 1})
	a, b := start(t, d, 0), start(t, d, 0)
	d.Cancel(10*ms, b) // each has done half
	d.Cancel(11*ms, 99)
	if got, want := d.Advance(second), []Outcome{{a, 15 * ms, nil}}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

func TestCrashAndRecoveryByTheInstant(t *testing.T) {
	cfg := sturdy
	cfg.CrashAt, cfg.Recovery, cfg.Warmup, cfg.Cold = 12, 3*time.Second, 2*time.Second, 5
	d := open(t, cfg)
	for range 11 {
		start(t, d, 5*ms)
	}
	if _, err := d.Start(6 * ms); !errors.Is(err, ErrCrashed) {
		t.Fatalf("the twelfth: %v", err)
	}
	failed := d.Advance(6 * ms)
	if len(failed) != 11 {
		t.Errorf("%d failed with it, want 11", len(failed))
	}
	for i, o := range failed {
		if o.ID != uint64(i+1) || o.At != 6*ms || !errors.Is(o.Err, ErrCrashed) {
			t.Errorf("%+v", o)
		}
	}
	back := 6*ms + 3*second
	if h := d.Health(back - 1); h.State != Down || h.InFlight != 0 || h.Latency != 0 {
		t.Errorf("before the recovery: %+v", h)
	}
	if _, err := d.Start(back - 1); !errors.Is(err, ErrDown) {
		t.Errorf("before the recovery: %v", err)
	}
	for _, c := range []struct {
		after   int64
		state   State
		latency time.Duration
	}{
		{0, Warming, 100 * time.Millisecond}, {second, Warming, 60 * time.Millisecond}, {2 * second, Up, 20 * time.Millisecond}, {9 * second, Up, 20 * time.Millisecond},
	} {
		now := back + c.after
		if h := d.Health(now); h.State != c.state || h.Latency != c.latency {
			t.Errorf("%s after the recovery: %+v, want %s and %s", time.Duration(c.after), h, c.state, c.latency)
		}
		start(t, d, now)
		if ended := d.Advance(now + second - 1); len(ended) != 1 || ended[0].At != now+int64(c.latency) {
			t.Errorf("%s after the recovery: %+v, want it done after %s", time.Duration(c.after), ended, c.latency)
		}
	}
	if got, want := d.Health(20*second).Counts, (Counts{Done: 4, Failed: 12, Refused: 1, Crashes: 1}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

func TestCrashAfterSoLongOverTheKnee(t *testing.T) {
	cfg := Config{Latency: time.Second, Knee: 2, CrashAfter: 4 * time.Second, Recovery: time.Second}
	d := open(t, cfg)
	for range 3 { // over the knee until 1.5 s, when all three are done
		start(t, d, 0)
	}
	if ended := d.Advance(4 * second); len(ended) != 3 || ended[0].Err != nil || ended[0].At != 1500*ms {
		t.Fatalf("%+v", ended)
	}
	for range 20 { // ten seconds' work
		start(t, d, 5*second)
	}
	if at, ok := d.Next(); !ok || at != 9*second {
		t.Errorf("next is at %s, want the crash at 9s", time.Duration(at))
	}
	ended := d.Advance(100 * second)
	if len(ended) != 20 || ended[0].At != 9*second || !errors.Is(ended[0].Err, ErrCrashed) {
		t.Errorf("%+v", ended)
	}
	if h := d.Health(100 * second); h.State != Up || h.Counts.Crashes != 1 {
		t.Errorf("%+v", h)
	}
}

func TestHaltAndReturn(t *testing.T) {
	cfg := sturdy
	cfg.Recovery = time.Second // is for crashes
	d := open(t, cfg)
	start(t, d, 0)
	d.Halt(10 * ms)
	if ended := d.Advance(10 * ms); len(ended) != 1 || !errors.Is(ended[0].Err, ErrCrashed) {
		t.Errorf("%+v", ended)
	}
	if h := d.Health(100 * second); h.State != Down || h.Counts.Crashes != 0 {
		t.Errorf("%+v", h)
	}
	if _, ok := d.Next(); ok {
		t.Error("something happens by itself")
	}
	d.Return(100 * second)
	start(t, d, 100*second)
	if ended := d.Advance(101 * second); len(ended) != 1 || ended[0].Err != nil {
		t.Errorf("%+v", ended)
	}
}

// What starts is refused, ends once, or is still in flight; and the order in which one
// looks changes nothing.
func TestEveryStatementEndsOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cfg := Config{
			Latency: time.Duration(rapid.Int64Range(1, 100).Draw(t, "latency")) * time.Millisecond,
			Knee:    rapid.IntRange(1, 5).Draw(t, "knee"), Thrash: rapid.Float64Range(0, 3).Draw(t, "thrash"), Noise: rapid.Float64Range(0, 1).Draw(t, "noise"),
			CrashAfter: time.Duration(rapid.Int64Range(0, 500).Draw(t, "crash after")) * time.Millisecond,
			Recovery:   time.Duration(rapid.Int64Range(0, 500).Draw(t, "recovery")) * time.Millisecond, Warmup: 100 * time.Millisecond, Cold: 3,
		}
		cfg.CrashAt = cfg.Knee + rapid.IntRange(1, 20).Draw(t, "room")
		d, err := New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		watched, err := New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		begun, ended := map[uint64]bool{}, map[uint64]bool{}
		note := func(outcomes []Outcome) {
			for _, o := range outcomes {
				if !begun[o.ID] || ended[o.ID] {
					t.Fatalf("%d ended: begun %t, ended before %t", o.ID, begun[o.ID], ended[o.ID])
				}
				ended[o.ID] = true
			}
		}
		now := int64(0)
		for range rapid.IntRange(1, 100).Draw(t, "calls") {
			now += rapid.Int64Range(0, 100*ms).Draw(t, "pause")
			for { // watched is looked at whenever something happens
				at, ok := watched.Next()
				if !ok || at > now {
					break
				}
				watched.Advance(at)
			}
			a, errA := d.Start(now)
			b, errB := watched.Start(now)
			if a != b || !errors.Is(errB, errA) {
				t.Fatalf("at %s: %d, %v; watched %d, %v", time.Duration(now), a, errA, b, errB)
			}
			if errA == nil {
				begun[a] = true
			}
			note(d.Advance(now))
			if h := d.Health(now); h.InFlight != len(begun)-len(ended) {
				t.Fatalf("%d in flight, %d begun and %d ended", h.InFlight, len(begun), len(ended))
			}
		}
		note(d.Advance(now + 3600*second))
		if len(ended) != len(begun) {
			t.Errorf("%d begun, %d ended", len(begun), len(ended))
		}
	})
}

func TestYAML(t *testing.T) {
	var got Config
	text := "{latency: 20ms, knee: 8, thrash: 1.5, noise: 0.2, crash_at: 64, crash_after: 4s, recovery: 5s, warmup: 3s, cold: 4, seed: 7}"
	if err := yaml.Unmarshal([]byte(text), &got); err != nil {
		t.Fatal(err)
	}
	want := Config{20 * time.Millisecond, 8, 1.5, 0.2, 64, 4 * time.Second, 5 * time.Second, 3 * time.Second, 4, 7}
	if got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	for text, says := range map[string]string{
		"{latency: 20ms}": "knee 0: at least 1", "{knee: 3}": "latency 0s: above 0", "{latency: 20, knee: 3}": `"20" is not a duration`,
		"{latency: 1ms, knee: 3, crash_at: 3}": "crash_at 3: above the knee of 3", "{latency: 1ms, knee: 3, thresh: 1}": `no "thresh"`,
		"{latency: 1ms, knee: 3, warmup: 1s}": "cold 0", "{latency: 1ms, knee: 3, thrash: -1}": "thrash -1", "{latency: 1ms, knee: 3, noise: 3}": "noise 3",
	} {
		if err := yaml.Unmarshal([]byte(text), new(Config)); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v, want %s", text, err, says)
		}
	}
}
