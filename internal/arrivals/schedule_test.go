package arrivals

import (
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"
	"pgregory.net/rapid"
)

func parse(t *testing.T, text string) Pattern {
	t.Helper()
	var p Pattern
	if err := yaml.Unmarshal([]byte(text), &p); err != nil {
		t.Fatal(err)
	}
	return p
}

func times(p Pattern, length time.Duration) (at []time.Duration) {
	for a := range p.Schedule(length) {
		at = append(at, a.At)
	}
	return at
}

func TestEvenArrivals(t *testing.T) {
	p := parse(t, `groups: [{tenant: a, rate: 4/s, spacing: even}]`)
	if got, want := times(p, time.Second), []time.Duration{250e6, 500e6, 750e6}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// From 0 to 8 a second in 2 s the n-th of 8 comes where 2·t² = n.
func TestRamp(t *testing.T) {
	p := parse(t, `groups: [{tenant: a, spacing: even, phases: [{for: 2s, rate: 0, to: 8/s}, {for: 2s, rate: 8/s, to: 0}]}]`)
	got := times(p, time.Minute)
	for i, at := range got[:7] {
		if want := math.Sqrt(float64(i+1) / 2); math.Abs(at.Seconds()-want) > 1e-6 {
			t.Errorf("message %d at %v, want %v", i+1, at, want)
		}
	}
	if len(got) < 15 || len(got) > 16 { // the last one is at the very end
		t.Errorf("%d messages, want 16", len(got))
	}
}

func TestBurstAfterIdle(t *testing.T) {
	p := parse(t, `groups: [{tenant: a, spacing: even, repeat: true, phases: [{for: 1s, rate: 0, burst: 3}, {for: 2s, rate: 0}]}]`)
	if got, want := times(p, 4*time.Second), []time.Duration{0, 0, 0, 3e9, 3e9, 3e9}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if got := times(parse(t, `groups: [{tenant: a, repeat: true, phases: [{for: 1s, rate: 0}]}]`), time.Hour); got != nil {
		t.Errorf("%v of nothing", got)
	}
}

func TestPoissonArrivals(t *testing.T) {
	p := parse(t, `{seed: 5, groups: [{tenant: t, tenants: 4, rate: 100/s, bytes: 1KiB, topic: bills}]}`)
	n, gap, squares, last := 0, 0.0, 0.0, time.Duration(0)
	by := map[string]int{}
	for a := range p.Schedule(1000 * time.Second) {
		n++
		d := (a.At - last).Seconds()
		gap, squares, last = gap+d, squares+d*d, a.At
		by[a.Tenant]++
		if a.Topic != "bills" || a.Bytes != 1024 {
			t.Fatalf("%+v", a)
		}
	}
	if math.Abs(float64(n)-100_000) > 4*math.Sqrt(100_000) {
		t.Errorf("%d messages in 1,000 s at 100/s", n)
	}
	mean := gap / float64(n)
	if spread := math.Sqrt(squares/float64(n)-mean*mean) / mean; math.Abs(spread-1) > 0.02 {
		t.Errorf("the gaps' standard deviation is %.3f of their mean, want 1", spread)
	}
	for _, name := range []string{"t1", "t2", "t3", "t4"} {
		if math.Abs(float64(by[name])-25_000) > 4*math.Sqrt(25_000) {
			t.Errorf("%s published %d of %d", name, by[name], n)
		}
	}
}

// Whatever the phases: in order, the same twice, and about as many as the rates' integral.
func TestScheduleIsThatOfItsRates(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g := Group{Tenant: "a", Spacing: rapid.SampledFrom([]Spacing{Poisson, Even}).Draw(t, "spacing"), Repeat: rapid.Bool().Draw(t, "repeat")}
		want, total := 0.0, time.Duration(0)
		for range rapid.IntRange(1, 5).Draw(t, "phases") {
			f := Phase{
				For:  time.Duration(rapid.Int64Range(1e6, 20e9).Draw(t, "for")),
				From: float64(rapid.IntRange(0, 60).Draw(t, "from")), To: float64(rapid.IntRange(0, 60).Draw(t, "to")),
				Burst: rapid.IntRange(0, 20).Draw(t, "burst"),
			}
			g.Phases = append(g.Phases, f)
			want += (f.From+f.To)/2*f.For.Seconds() + float64(f.Burst)
			total += f.For
		}
		p := Pattern{Seed: rapid.Uint64().Draw(t, "seed"), Groups: []Group{g}}
		if err := p.Validate(); err != nil {
			t.Fatal(err)
		}
		got := times(p, total)
		if !slices.IsSorted(got) {
			t.Fatal("not in order")
		}
		if again := times(p, total); !slices.Equal(got, again) {
			t.Fatal("drawn differently a second time")
		}
		room := 5*math.Sqrt(want) + 6
		if g.Spacing == Even {
			room = 7 // a burst begins the count anew
		}
		if math.Abs(float64(len(got))-want) > room {
			t.Fatalf("%d messages, want %.1f", len(got), want)
		}
	})
}

func TestPatternRefuses(t *testing.T) {
	for text, says := range map[string]string{
		`groups: []`:                                                       "at least one group",
		`groups: [{rate: 5/s}]`:                                            "tenant is empty",
		`groups: [{tenant: a}]`:                                            "neither a rate nor phases",
		`groups: [{tenant: a, rate: 5}]`:                                   "is not a rate",
		`groups: [{tenant: a, rate: unlimited}]`:                           "has a rate",
		`groups: [{tenant: a, rate: 5/s, spacing: lazy}]`:                  `spacing "lazy"`,
		`groups: [{tenant: a, rate: 5/s, phases: [{for: 1s, rate: 1/s}]}]`: "both a rate and phases",
		`groups: [{tenant: a, phases: [{for: 0s, rate: 1/s}]}]`:            "phase 1",
		`groups: [{tenant: a, bytes: many, rate: 5/s}]`:                    "is not a size",
		`groups: [{tenant: a, tenants: -1, rate: 5/s}]`:                    "-1 tenants",
		`{sead: 7, groups: [{tenant: a, rate: 5/s}]}`:                      `a pattern has no "sead"`,
		`groups: [{tenant: a, rat: 5/s}]`:                                  `a group has no "rat"`,
		`groups: [{tenant: a, phases: [{for: 1s, rate: 1/s, size: 4}]}]`:   `a phase has no "size"`,

		"":               "it is empty",
		"# nothing\n":    "it is empty",
		"null":           "at least one group",
		"12,acme,orders": "a pattern has groups, and a recording begins with at_us,tenant",
		"groups: [{tenant: a, rate: 1/s}]\n---\ngroups: []":    "a second document",
		"seed: abc\ngroups: [{tenant: a, rate: 1/s}]":          "line 1: `abc` is not a whole number",
		"groups:\n  - tenant: a\n    rate: 1/s\n    repeat: 5": "line 4: `5` is neither true nor false",
		"groups: 5":   "line 1: `5` is not a list",
		"groups: [5]": "line 1: `5` is not a list of keys and values",
		"groups:\n  - {tenant: a, rate: 1/s}\n  - {tenant: b, rate: 1/s, bytes: -1}": `line 3: group 2 ("b"): -1 bytes`,
		// What would take hours, or more memory than there is.
		`groups: [{tenant: a, tenants: 1000000000, rate: 1/s}]`:                                      "1000000000 tenants: 1 to 1000000 is right",
		`groups: [{tenant: a, tenants: 600000, rate: 1/s}, {tenant: b, tenants: 600000, rate: 1/s}]`: "over 1000000 tenants",
		`groups: [{tenant: a, rate: 10000000/s}]`:                                                    "0 to 1000000 a second",
		`groups: [{tenant: a, phases: [{for: 1s, rate: 0, burst: 1000000000}]}]`:                     "burst 1000000000",
		`groups: [{tenant: a, repeat: true, phases: [{for: 1ns, rate: 1/s}]}]`:                       "phase 1: for 1ns: at least 1ms",
		// What no gateway takes.
		`groups: [{tenant: a.b c, rate: 1/s}]`:                                         `tenant "a.b c"`,
		`groups: [{tenant: ` + strings.Repeat("x", 62) + `, tenants: 100, rate: 1/s}]`: "1 to 64 of",
		`groups: [{tenant: a, topic: a..b, rate: 1/s}]`:                                `topic "a..b"`,
		`groups: [{tenant: a, topic: "a.>", rate: 1/s}]`:                               `topic "a.>"`,
		`groups: [{tenant: a, bytes: 999999999999999, rate: 1/s}]`:                     "0 to 67108864 is right",
	} {
		if _, err := ReadPattern([]byte(text)); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v, want %q", text, err, says)
		}
	}
}

// Of groups that come at the same instant the one that is written first is first, however
// many there are.
func TestGroupsAtTheSameInstant(t *testing.T) {
	p := Pattern{}
	for i := range 1000 {
		p.Groups = append(p.Groups, Group{Tenant: "t" + strconv.Itoa(i), Spacing: Even, Phases: []Phase{{For: time.Minute, From: 1, To: 1}}})
	}
	n := 0
	for a := range p.Schedule(2500 * time.Millisecond) {
		if want := "t" + strconv.Itoa(n%1000); a.Tenant != want || a.At != time.Duration(1+n/1000)*time.Second {
			t.Fatalf("arrival %d is of %s at %v, want %s", n, a.Tenant, a.At, want)
		}
		n++
	}
	if n != 2000 {
		t.Errorf("%d arrivals, want 2000", n)
	}
}

func TestPatternLength(t *testing.T) {
	for text, want := range map[string]time.Duration{
		`groups: [{tenant: a, phases: [{for: 1s, rate: 1/s}, {for: 2s, rate: 1/s}]}, {tenant: b, phases: [{for: 2s, rate: 1/s}]}]`: 3 * time.Second,
		`groups: [{tenant: a, rate: 1/s}, {tenant: b, phases: [{for: 2s, rate: 1/s}]}]`:                                            0,
		`groups: [{tenant: a, repeat: true, phases: [{for: 1s, rate: 1/s}]}]`:                                                      0,
	} {
		if got, ok := parse(t, text).Length(); got != want || ok != (want > 0) {
			t.Errorf("%s: %v, %v", text, got, ok)
		}
	}
}
