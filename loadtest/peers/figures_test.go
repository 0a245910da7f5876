package main

import (
	"context"
	"errors"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

func at(ms ...int) (d []time.Duration) {
	for _, m := range ms {
		d = append(d, time.Duration(m)*time.Millisecond)
	}
	return d
}

func TestMostInAWindow(t *testing.T) {
	for name, c := range map[string]struct {
		at   []time.Duration
		want int
	}{
		"none": {nil, 0}, "one": {at(5), 1}, "its end is the next one's": {at(0, 1000), 1}, "just within": {at(0, 999), 2},
		"not at a whole second": {at(0, 900, 950, 1000, 1800, 3000), 4},
	} {
		if got := most(c.at, time.Second); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
}

func TestFewestInAWindow(t *testing.T) {
	for name, c := range map[string]struct {
		at       []time.Duration
		from, to time.Duration
		want     int
	}{
		"none":                    {nil, 0, 3 * time.Second, 0},
		"shorter than the window": {at(1, 2), 0, time.Second / 2, 0},
		"even":                    {at(0, 500, 1000, 1500, 2000, 2500), 0, 3 * time.Second, 2},
		"a break between seconds": {at(0, 100, 200, 300, 1700, 1800, 1900, 1950), 0, 2 * time.Second, 0},
		"a break afterwards":      {at(0, 500, 1000, 1500), 0, 2 * time.Second, 2},
	} {
		if got := fewest(c.at, time.Second, c.from, c.to); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
}

// Who is not answered is not left out of how long answers take, and of several refusals
// none is hidden.
func TestAnswers(t *testing.T) {
	r := newRecord()
	r.messages = make([]publication, 4)
	for id, err := range []error{nil, context.DeadlineExceeded, errors.New("full"), errors.New("no responders")} {
		r.answer(id, err)
	}
	for i := range r.messages {
		r.messages[i].answered = time.Millisecond
	}
	r.messages[1].answered = answerIn
	got := r.result(phase{Name: overload, Length: time.Second}, true, 0)
	if got.Accepted != 1 || got.Unanswered != 1 || got.Refused != 2 || got.AnswerP99 != milliseconds(answerIn) {
		t.Errorf("%+v", got)
	}
	if text := quoted(got); !strings.Contains(text, "1 × `full`") || !strings.Contains(text, "1 × `no responders`") {
		t.Errorf("told %s", text)
	}
}

// A bound that all keep makes none the best, and one that is broken is not.
func TestTheRateIsKeptOrNot(t *testing.T) {
	o := outcome{Results: []result{
		{Peer: "flowgate", Phase: overload, Worst: 1.005}, {Peer: "jetstream", Phase: overload, Worst: 0.8}, {Peer: "benthos", Phase: overload, Worst: 1.25},
	}}
	for _, r := range o.rows(sheets[1]) {
		if kept := r.Name != "benthos"; r.best[1] != kept {
			t.Errorf("%s with %s: %t", r.Name, r.cells[1], r.best[1])
		}
	}
}

func TestJitter(t *testing.T) {
	g := gaps(at(0, 10, 20, 50, 60))
	if want := at(10, 10, 30, 10); !slices.Equal(g, want) {
		t.Fatalf("gaps %v, want %v", g, want)
	}
	if p50, p99 := quantile(g, 0.5), quantile(g, 0.99); p50 != 10*time.Millisecond || p99 != 30*time.Millisecond {
		t.Errorf("p50 %s, p99 %s", p50, p99)
	}
	if got := milliseconds(spread(g)); math.Abs(got-math.Sqrt(75)) > 1e-5 { // about 15: three of -5 and one of 15
		t.Errorf("std %g ms, want %g", got, math.Sqrt(75))
	}
	if got := spread(gaps(at(0, 5, 10))); got != 0 {
		t.Errorf("even gaps have a std of %s", got)
	}
}

func TestFairness(t *testing.T) {
	for _, c := range []struct {
		x    []float64
		want float64
	}{{[]float64{1, 1, 1, 1, 1}, 1}, {[]float64{1, 0, 0, 0, 0}, 0.2}, {[]float64{1, 3}, 0.8}, {[]float64{0, 0}, 0}} {
		if got := jain(c.x); math.Abs(got-c.want) > 1e-12 {
			t.Errorf("%v: %g, want %g", c.x, got, c.want)
		}
	}
	if got, want := shares(200, []float64{400, 20, 20, 20, 20}), []float64{120, 20, 20, 20, 20}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if got, want := shares(30, []float64{50, 5, 50}), []float64{12.5, 5, 12.5}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

func TestTextsAreCountedWithoutTheirNumbers(t *testing.T) {
	if a, b := shape("retry_after_ms=60"), shape("retry_after_ms=1250"); a != b || a != "retry_after_ms=#" {
		t.Errorf("%q and %q", a, b)
	}
}

// Lost is what was acknowledged and came in neither life; what came twice is told apart.
func TestTheLedger(t *testing.T) {
	r, err := readLedger(strings.NewReader("a 1\na 2\nd 1\na 3\nd 1\nd 9\n"), true)
	if want := (result{Phase: crash, Settled: true, Accepted: 3, Delivered: 1, Missing: 2, Repeats: 1}); err != nil || !reflect.DeepEqual(r, want) {
		t.Errorf("%+v, %v", r, err)
	}
	if r, err := readLedger(strings.NewReader("a 1\n"), false); err != nil || missing(r) != "1 still waiting" {
		t.Errorf("what was not waited for is called lost: %+v, %v", r, err)
	}
	for _, bad := range []string{"", "d 1\n", "a 1\nnonsense\n"} {
		if r, err := readLedger(strings.NewReader(bad), true); err == nil {
			t.Errorf("%q: %+v", bad, r)
		}
	}
}

func TestBetweenTheMarks(t *testing.T) {
	got, err := between("by hand\n"+opens+"old"+closes+"\nby hand too\n", "new")
	if want := "by hand\n" + opens + "\n\nnew\n" + closes + "\nby hand too\n"; err != nil || got != want {
		t.Errorf("%q, %v", got, err)
	}
	if _, err := between("no marks", "new"); err == nil {
		t.Error("a document without marks is no error")
	}
}
