package report

import (
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/flowgate/flowgate/internal/fragile"
	"github.com/flowgate/flowgate/loadtest/invariants"
	"github.com/flowgate/flowgate/loadtest/scenario"
	"github.com/flowgate/flowgate/loadtest/trial"
)

const ms = int64(time.Millisecond)

// result is ten seconds: a hundred messages a second apart by 100 ms, each done 50 ms after
// it was due with flowgate, and the first half of them without it.
func result() *trial.Result {
	s := &scenario.Scenario{Name: "drawn", Shows: "What is drawn.", For: scenario.Duration(10 * time.Second), Database: fragile.Config{Latency: 20 * time.Millisecond, Knee: 8, CrashAt: 64}}
	r := &trial.Result{Scenario: s, Took: 10 * time.Second, With: &trial.Side{Record: &invariants.Record{}}, Without: &trial.Side{Record: &invariants.Record{}}}
	r.Config.Shaper.Rate.N, r.Config.Shaper.Rate.Per = 100, time.Second
	r.Config.Backpressure.High = 10
	for i := range 100 {
		due := int64(i) * 100 * ms
		m := invariants.Message{ID: "acme/" + string(rune('a'+i)), Tenant: "acme", Due: due}
		done := invariants.Arrived{ID: m.ID, Tenant: "acme", Admitted: due + 10*ms, Started: due + 30*ms, Ended: due + 50*ms, Done: true}
		with := r.With.Record
		place := with.Send(m)
		if i%10 == 0 { // refused at first
			with.Tell(invariants.Try{Message: place, Due: due, Sent: due, Answered: due + 2*ms, Told: "backlog"})
		}
		with.Tell(invariants.Try{Message: place, Due: due + 8*ms, Sent: due + 8*ms, Answered: due + 10*ms, Told: invariants.Acked})
		with.Arrive(done)
		r.Without.Record.Send(m)
		done.Done = i < 50
		r.Without.Record.Arrive(done)
		at := time.Duration(due)
		r.With.Health = append(r.With.Health, trial.Sample{At: at, Peak: 1, Database: fragile.Health{State: fragile.Up}})
		down := trial.Sample{At: at, Database: fragile.Health{State: fragile.Up}}
		if i >= 50 {
			down.Database.State, down.Database.Counts.Crashes = fragile.Down, 1
		}
		r.Without.Health = append(r.Without.Health, down)
	}
	return r
}

func TestFigures(t *testing.T) {
	f := Make(result())
	if w := f.With; w.Delivered != 100 || w.Refused != 0 || w.Crashes != 0 || w.Down != 0 || w.Fairness != 1 {
		t.Errorf("with flowgate: %+v", w)
	}
	if w := f.Without; w.Delivered != 50 || w.Failed != 50 || w.Crashes != 1 || math.Abs(w.Down-5) > 0.001 || len(w.DownSpans) != 1 || w.DownSpans[0].From != 5 {
		t.Errorf("without: %+v", w)
	}
	sum := 0.0
	for i, v := range f.With.Departures {
		sum += v * f.Step
		if f.With.Depth[i] > 1 {
			t.Errorf("depth %g in step %d", f.With.Depth[i], i)
		}
	}
	if math.Abs(sum-100) > 0.001 {
		t.Errorf("the departures add up to %g", sum)
	}
	near := func(name string, got, want float64) {
		if math.Abs(got-want) > want/100 {
			t.Errorf("%s: %g, want %g", name, got, want)
		}
	}
	near("due to done, p50", f.With.Delivery.P50, 50)
	near("due to done, longest", f.With.Delivery.Max, 50)
	near("without it, what was never done has waited to the end", f.Without.Delivery.Max, 5000)
	near("due to acknowledged", f.Admission.P99, 10)
	near("answers", f.Answer.P50, 2)
	near("latency of a statement", f.With.Latencies[0], 20)
	refused := 0.0
	for _, v := range f.Refusals["backlog"] {
		refused += v * f.Step
	}
	near("refusals", refused, 10)
}

func TestHeadline(t *testing.T) {
	if got, want := Make(result()).Headline(), "Without flowgate the database went down once, was away for 5.0 s and took 50.0 % of all messages. With it, it stayed up and took 100.0 % of all messages."; got != want {
		t.Errorf("%s", got)
	}
}

// What is broken stands in the page, and what producers and tenants are called is text.
func TestWrite(t *testing.T) {
	f := Make(result())
	f.Checks = []Check{{Promise: "nothing is <lost>", Found: "one", Broken: []string{"acme/<script> is lost"}}}
	dir := filepath.Join(t.TempDir(), "new")
	if err := Write(dir, []*Figures{f, f}); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(dir, "report.html"))
	if err != nil {
		t.Fatal(err)
	}
	page := string(text)
	if !strings.Contains(page, "acme/&lt;script&gt; is lost") || strings.Contains(page, "<script") || !strings.Contains(page, "broken") {
		t.Error("the breach is not there, or not as text")
	}
	if strings.Contains(page, "NaN") || strings.Contains(page, "Inf") || strings.Contains(page, "ZgotmplZ") {
		t.Error("something could not be drawn")
	}
	if n := strings.Count(page, "<svg"); n != 2*12 {
		t.Errorf("%d charts, want 12 each", n)
	}
}

func TestTicksAreRound(t *testing.T) {
	for _, c := range []struct {
		most float64
		want string
	}{{1, "0 0.5 1"}, {64, "0 20 40 60"}, {1000, "0 500 1,000"}, {9600, "0 5,000 10k"}} {
		chart := newChart("", "", 10, c.most)
		var got []string
		for _, y := range chart.Y {
			got = append(got, y.Label)
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("up to %g: %q, want %s", c.most, got, c.want)
		}
	}
}
