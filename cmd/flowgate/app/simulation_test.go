package app

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.yaml.in/yaml/v3"

	"github.com/flowgate/flowgate/cmd/flowgate/settings"
	"github.com/flowgate/flowgate/internal/arrivals"
	"github.com/flowgate/flowgate/internal/bubble"
	"github.com/flowgate/flowgate/internal/consumers"
	"github.com/flowgate/flowgate/internal/shaper"
	"github.com/flowgate/flowgate/internal/simulation"
)

// trace is one and the same thing for a gateway and for its simulation.
type trace struct {
	pattern   string
	length    time.Duration
	producers string
	consumer  string
	pauses    string
	environ   []string
	// few is by how many messages both may differ whatever the depth is; 0: 3.
	few float64
}

var traces = map[string]trace{
	"surge over HIGH, obedient": {
		pattern: `{seed: 1, groups: [{tenant: t, tenants: 5, repeat: false, phases: [{for: 15s, rate: 50/s}, {for: 10s, rate: 300/s}, {for: 55s, rate: 80/s}]}]}`,
		length:  80 * time.Second, producers: "obey", consumer: "5ms",
		environ: []string{"FLOWGATE_SHAPER_RATE=100/s", "FLOWGATE_BACKPRESSURE_HIGH=500", "FLOWGATE_LIMIT_TENANT=unlimited"},
	},
	"tenant limits": {
		pattern: `{seed: 2, groups: [{tenant: small, rate: 10/s}, {tenant: middle, rate: 30/s}, {tenant: big, rate: 50/s, spacing: even}]}`,
		length:  60 * time.Second, producers: "forget,middle=backoff", consumer: "5ms",
		environ: []string{"FLOWGATE_SHAPER_RATE=60/s", "FLOWGATE_LIMIT_TENANT=token-bucket:20/s,burst=40"},
	},
	"noisy neighbour": {
		pattern: `{seed: 3, groups: [{tenant: quiet, tenants: 5, rate: 40/s}, {tenant: noisy, phases: [{for: 10s, rate: 0}, {for: 20s, rate: 200/s}, {for: 30s, rate: 20/s}]}]}`,
		length:  60 * time.Second, producers: "obey,noisy=forget", consumer: "5ms",
		environ: []string{"FLOWGATE_SHAPER_RATE=80/s", "FLOWGATE_BACKPRESSURE_HIGH=400", "FLOWGATE_LIMIT_TENANT=unlimited"},
	},
	"slow and dying consumer": {
		pattern: `{seed: 4, groups: [{tenant: t, tenants: 3, rate: 50/s}]}`,
		length:  90 * time.Second, producers: "obey", consumer: "latency=20ms,slow=100ms/20s@20s,down=10s@55s",
		environ: []string{"FLOWGATE_SHAPER_RATE=100/s", "FLOWGATE_BACKPRESSURE_HIGH=250", "FLOWGATE_LIMIT_TENANT=unlimited", "FLOWGATE_BACKPRESSURE_FAIR=off"},
	},
	"pause": {
		pattern: `{seed: 5, groups: [{tenant: t, tenants: 3, rate: 40/s}]}`,
		length:  60 * time.Second, producers: "obey", consumer: "5ms", pauses: "15s@20s",
		environ: []string{"FLOWGATE_SHAPER_RATE=60/s", "FLOWGATE_BACKPRESSURE_HIGH=300", "FLOWGATE_BACKPRESSURE_TENANT_MAX=150", "FLOWGATE_LIMIT_TENANT=unlimited"},
	},
	"a database past its knee": {
		pattern: `{seed: 7, groups: [{tenant: t, tenants: 4, phases: [{for: 20s, rate: 60/s}, {for: 20s, rate: 220/s}, {for: 20s, rate: 30/s}]}]}`,
		length:  60 * time.Second, producers: "obey", consumer: "latency=40ms,knee=4,thrash=1,noise=0.3",
		environ: []string{"FLOWGATE_SHAPER_RATE=150/s", "FLOWGATE_CONSUMER_CONCURRENCY=16", "FLOWGATE_SHAPER_ADAPTIVE=on", "FLOWGATE_SHAPER_TARGET_LATENCY=80ms", "FLOWGATE_BACKPRESSURE_HIGH=1000", "FLOWGATE_LIMIT_TENANT=unlimited"},
	},
	"batches in order": {
		pattern: `{seed: 6, groups: [{tenant: a, rate: 60/s}, {tenant: b, phases: [{for: 1500ms, rate: 0}, {for: 30s, rate: 20/s, burst: 300}]}]}`,
		length:  40 * time.Second, producers: "obey", consumer: "latency=30ms,fail=2%",
		environ: []string{"FLOWGATE_SHAPER_RATE=100/s", "FLOWGATE_CONSUMER_BATCH=10", "FLOWGATE_CONSUMER_BATCH_WAIT=50ms", "FLOWGATE_CONSUMER_ORDER=tenant", "FLOWGATE_BACKPRESSURE_HIGH=250", "FLOWGATE_SHAPER_WEIGHTS=a=3"},
		few:     10, // a delivery that ends at the very second
	},
}

// measured is what both tell.
type measured struct {
	depth    []uint64          // each second
	refusals map[string]uint64 // tries, by tenant and reason
}

// What is predicted is what happens: the depth of each second and the refusals of each
// tenant, within 5 %.
func TestSimulationAgainstTheGateway(t *testing.T) {
	for _, name := range slices.Sorted(maps.Keys(traces)) {
		tr := traces[name]
		t.Run(name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				real := tr.happen(t)
				tr.compare(t, tr.predict(t, tr.schedule(t)), real)
			})
		})
	}
}

func (tr trace) schedule(t *testing.T) iter.Seq[arrivals.Arrival] {
	var p arrivals.Pattern
	if err := yaml.Unmarshal([]byte(tr.pattern), &p); err != nil {
		t.Fatal(err)
	}
	return p.Schedule(tr.length)
}

func (tr trace) model(t *testing.T) func() simulation.Consumer {
	c, err := simulation.ParseConsumer(tr.consumer, 1)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func (tr trace) predict(t *testing.T, schedule iter.Seq[arrivals.Arrival]) (m measured) {
	c, err := settings.Load(tr.environ)
	if err != nil {
		t.Fatal(err)
	}
	producers, err := simulation.ParseProducers(tr.producers)
	if err != nil {
		t.Fatal(err)
	}
	pauses, err := simulation.ParsePauses(tr.pauses)
	if err != nil {
		t.Fatal(err)
	}
	r, err := simulation.Run(t.Context(), simulation.Config{
		Mode: c.Mode, Ingress: c.Ingress, Limit: c.Limit, Backpressure: c.Backpressure, Shaper: c.Shaper, Consumer: c.Consumer,
	}, simulation.Scenario{Arrivals: schedule, Length: tr.length, Producers: producers, Consumer: tr.model(t), Pauses: pauses, Seed: 1, Draw: middle})
	if err != nil {
		t.Fatal(err)
	}
	m.refusals = map[string]uint64{}
	for _, s := range r.Samples {
		m.depth = append(m.depth, s.Depth)
	}
	for _, tenant := range r.Tenants {
		for reason, n := range tenant.Refused {
			m.refusals[tenant.Tenant+" "+reason] = n
		}
	}
	return m
}

// middle is what both draw their waits by: two runs of a real gateway differ by that.
func middle() float64 { return 0.5 }

// modelled delivers to a model of a consumer, in real time.
type modelled struct {
	began time.Time

	mu      sync.Mutex
	model   simulation.Consumer
	waiting map[uint64]chan error
}

func (d *modelled) Deliver(ctx context.Context, batch []consumers.Delivery) []error {
	verdicts := make([]error, len(batch))
	answer := d.do(ctx, len(batch))
	for i := range verdicts {
		verdicts[i] = answer
	}
	return verdicts
}

func (d *modelled) do(ctx context.Context, n int) error {
	d.mu.Lock()
	id, err := d.model.Start(time.Since(d.began), n)
	if err != nil {
		d.settle()
		d.mu.Unlock()
		return err
	}
	ended := make(chan error, 1)
	d.waiting[id] = ended
	d.mu.Unlock()
	for {
		d.mu.Lock()
		d.settle()
		at, _ := d.model.Next()
		d.mu.Unlock()
		select {
		case err := <-ended:
			return err
		case <-ctx.Done():
			d.mu.Lock()
			d.model.Cancel(time.Since(d.began), id)
			d.mu.Unlock()
			return ctx.Err()
		case <-time.After(at - time.Since(d.began)):
		}
	}
}

// settle requires that mu is held.
func (d *modelled) settle() {
	for _, a := range d.model.Advance(time.Since(d.began)) {
		d.waiting[a.ID] <- a.Err
		delete(d.waiting, a.ID)
	}
}

func (d *modelled) Close() error { return nil }

var reasons = map[jetstream.ErrorCode]string{60429: "rate_limited", 60430: "tenant_backlog", 60503: "backlog", 60505: "overloaded"}

// happen has a real gateway meet the trace.
func (tr trace) happen(t *testing.T) measured {
	consumer := &modelled{model: tr.model(t)(), waiting: map[uint64]chan error{}}
	r, err := tryStartWith(t, t.TempDir(), nil, func(o *Options) { o.Destination = consumer }, tr.environ...)
	if err != nil {
		t.Fatal(err)
	}
	r.running().desk.Draw(middle)
	producers, _ := simulation.ParseProducers(tr.producers)
	pauses, _ := simulation.ParsePauses(tr.pauses)
	m := measured{refusals: map[string]uint64{}}
	var mu sync.Mutex
	var all sync.WaitGroup
	_, js := r.client()
	begin := time.Now()
	consumer.began = begin
	end := begin.Add(tr.length)
	all.Go(func() {
		for i := range int(tr.length / time.Second) {
			time.Sleep(time.Until(begin.Add(time.Duration(i+1) * time.Second)))
			s, _ := r.Status()
			m.depth = append(m.depth, s.Depth.Total)
		}
	})
	for _, p := range pauses {
		all.Go(func() {
			time.Sleep(p.From)
			if _, _, err := r.running().shaper.Pause(t.Context(), shaper.Pause{Until: begin.Add(p.From + p.For)}); err != nil {
				t.Error(err)
			}
		})
	}
	number := 0
	for a := range tr.schedule(t) {
		number++
		time.Sleep(time.Until(begin.Add(a.At)))
		msg := &nats.Msg{Subject: "ingress." + a.Tenant + "." + a.Topic, Header: nats.Header{"Nats-Msg-Id": {strconv.Itoa(number)}}, Data: make([]byte, a.Bytes)}
		all.Go(func() {
			behaviour := producers.Of(a.Tenant)
			for tries := 1; time.Now().Before(end); tries++ {
				_, err := js.PublishMsg(t.Context(), msg)
				if err == nil {
					return
				}
				code, wait := refusal(err)
				mu.Lock()
				m.refusals[a.Tenant+" "+reasons[code]]++
				mu.Unlock()
				if wait, ok := behaviour.Again(wait, tries, rand.Float64()); !ok {
					return
				} else {
					time.Sleep(wait)
				}
			}
		})
	}
	all.Wait()
	return m
}

// compare allows 5 %, and few messages where there are few.
func (tr trace) compare(t *testing.T, predicted, real measured) {
	t.Helper()
	const part = 0.05
	few := cmp.Or(tr.few, 3)
	off := func(a, b uint64) float64 {
		return max(0, math.Abs(float64(a)-float64(b))-few) / max(1, float64(b))
	}
	peak := slices.Max(real.depth)
	worst, at := 0.0, 0
	if len(predicted.depth) < len(real.depth) {
		t.Fatalf("%d samples predicted, %d measured", len(predicted.depth), len(real.depth))
	}
	for i, d := range real.depth {
		if o := off(predicted.depth[i], d); o > worst {
			worst, at = o, i
		}
	}
	var lines []string
	for _, key := range slices.Sorted(maps.Keys(merged(predicted.refusals, real.refusals))) {
		p, r := predicted.refusals[key], real.refusals[key]
		lines = append(lines, fmt.Sprintf("%s %d, predicted %d", key, r, p))
		if o := off(p, r); o > part {
			t.Errorf("refusals of %s: %d, predicted %d", key, r, p)
		}
	}
	t.Logf("depth up to %d, predicted within %.1f %% (%d at second %d, predicted %d); refusals: %s",
		peak, 100*worst, real.depth[at], at+1, predicted.depth[at], strings.Join(lines, "; "))
	if worst > part {
		t.Errorf("depth at second %d: %d, predicted %d\nmeasured  %v\npredicted %v", at+1, real.depth[at], predicted.depth[at], real.depth, predicted.depth)
	}
}

func merged(a, b map[string]uint64) map[string]uint64 {
	m := maps.Clone(a)
	maps.Copy(m, b)
	return m
}
