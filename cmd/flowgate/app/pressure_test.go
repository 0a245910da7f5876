package app

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/flowgate/flowgate/internal/backpressure"
	"github.com/flowgate/flowgate/internal/bubble"
)

// told is a broadcast and when it came.
type told struct {
	Pressure
	at time.Time
}

// listen gathers what producers are told.
func listen(t *testing.T, nc *nats.Conn) func() []told {
	t.Helper()
	msgs := make(chan *nats.Msg, 10_000)
	if _, err := nc.ChanSubscribe("flowgate.pressure", msgs); err != nil {
		t.Fatal(err)
	}
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
	heard, ended := make(chan told, 10_000), make(chan struct{})
	go func() {
		for {
			select {
			case m := <-msgs:
				p := told{at: time.Now()}
				if err := json.Unmarshal(m.Data, &p.Pressure); err != nil {
					t.Errorf("%v: %s", err, m.Data)
				}
				heard <- p
			case <-ended:
				return
			}
		}
	}()
	t.Cleanup(func() { close(ended) })
	return func() (all []told) {
		for {
			select {
			case p := <-heard:
				all = append(all, p)
			default:
				return all
			}
		}
	}
}

// Producers hear each second how full it is, and at once when the level changes, with
// the hint that a first try would get.
func TestPressureIsTold(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := start(t, "FLOWGATE_BACKPRESSURE_HIGH=100", "FLOWGATE_BACKPRESSURE_LOW=60", "FLOWGATE_SHAPER_RATE=10/s")
		nc, js := r.client() // a producer may hear it
		heard := listen(t, nc)
		time.Sleep(10 * time.Second)
		calm := heard()
		if len(calm) < 9 || len(calm) > 11 {
			t.Errorf("told %d times in 10 s", len(calm))
		}
		for _, p := range calm {
			if p.Type != "io.flowgate.v1.pressure" || p.Name != "flowgate" || p.Level != "normal" || p.Hint != nil || p.Signals == nil ||
				len(p.Signals) != 0 || p.Watermarks != (Watermarks{60, 100, 200}) || p.Rate.Configured == nil || *p.Rate.Configured != 10 {
				t.Fatalf("%+v", p)
			}
		}
		var crossed time.Time
		var wait time.Duration
		for range 110 {
			if _, err := js.Publish(t.Context(), "ingress.acme.orders", nil); err != nil {
				crossed = time.Now()
				_, wait = refusal(err)
				break
			}
		}
		time.Sleep(10 * time.Second)
		all := heard()
		up := slices.IndexFunc(all, func(p told) bool { return p.Level == "pressured" })
		if up < 0 {
			t.Fatal("nobody was told that it is pressured")
		}
		p := all[up]
		if late := p.at.Sub(crossed); late > 2*pressureGap {
			t.Errorf("told %s late", late)
		}
		if p.Hint == nil || time.Duration(p.Hint.RetryAfterMS)*time.Millisecond > wait+110*time.Millisecond || p.Hint.RetryAfterMS < wait.Milliseconds()-200 ||
			!slices.Equal(p.Signals, []string{"depth"}) || p.Depth.Total < 95 || p.DrainSeconds == nil {
			t.Errorf("refused with a hint of %s, told %+v, hint %+v", wait, p, p.Hint)
		}
		down := slices.IndexFunc(all[up:], func(p told) bool { return p.Level == "normal" })
		if down < 0 {
			t.Fatal("nobody was told that it is over")
		}
		if p := all[up+down]; p.Depth.Total > 60 || p.Depth.Total < 57 {
			t.Errorf("over, and told %+v", p)
		}
		// The one that was refused has its place for some time still.
		if p := all[len(all)-1]; p.Hint != nil || p.Level != "normal" {
			t.Errorf("long over, and told %+v", p)
		}
	})
}

// Paused, it says so, and that nothing drains; in shadow mode nobody is refused, so
// there is no hint.
func TestPressureOfAPausedGatewayAndInShadow(t *testing.T) {
	for _, mode := range []string{"enforce", "shadow"} {
		t.Run(mode, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				r := start(t, "FLOWGATE_BACKPRESSURE_HIGH=20", "FLOWGATE_MODE="+mode)
				if code, body, _ := ask(r, "POST", "/api/v1/pause", `{"reason":"index build","author":"ann"}`); code != 200 {
					t.Fatal(body)
				}
				nc, js := r.client()
				heard := listen(t, nc)
				r.admitted(js, "acme", 20)
				time.Sleep(5 * time.Second)
				all := heard()
				if len(all) < 5 {
					t.Fatalf("told %d times", len(all))
				}
				p := all[len(all)-1]
				if p.Level != "pressured" || !p.Paused || p.DrainSeconds != nil || (p.Hint != nil) != (mode == "enforce") {
					t.Errorf("%+v, hint %+v", p.Pressure, p.Hint)
				}
			})
		})
	}
}

// Only the active one tells; who takes over goes on.
func TestStandbyTellsNothing(t *testing.T) {
	broker := &elsewhere{t: t, dir: t.TempDir(), port: -1}
	broker.start()
	defer func() { broker.stop() }()
	url := fmt.Sprintf("FLOWGATE_NATS_URL=nats://127.0.0.1:%d", broker.port)
	first := startIn(t, t.TempDir(), &sink{}, url, "FLOWGATE_NATS_LISTEN=", "FLOWGATE_SHAPER_RATE=50/s")
	second := standby(t, url, "FLOWGATE_NATS_LISTEN=", "FLOWGATE_SHAPER_RATE=70/s")
	nc, err := nats.Connect(broker.s.ClientURL())
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	heard := listen(t, nc)
	configured := func() (rates []float64) {
		for _, p := range heard() {
			rates = append(rates, *p.Rate.Configured)
		}
		return rates
	}
	var rates []float64
	second.eventually("it is told", func() bool { rates = append(rates, configured()...); return len(rates) >= 3 })
	if slices.Contains(rates, 70) {
		t.Errorf("who stands by tells too: %v", rates)
	}
	if err := first.stop(); err != nil {
		t.Fatal(err)
	}
	configured()
	second.eventually("who took over tells", func() bool { return slices.Contains(configured(), 70) })
}

func TestTenantsToldAreBounded(t *testing.T) {
	var p Pressure
	if body, _ := json.Marshal(p); contains(string(body), "over_part") {
		t.Errorf("absent means everyone: %s", body)
	}
	p.overPart(backpressure.Snapshot{})
	if body, _ := json.Marshal(p); !contains(string(body), `"over_part":[]`) || contains(string(body), "over_part_more") {
		t.Errorf("none means nobody: %s", body)
	}
	p.overPart(backpressure.Snapshot{OverPart: make([]backpressure.Holder, mostOverPart+1), TenantsOverPart: mostOverPart + 1})
	if len(p.OverPart) != mostOverPart || !p.OverPartMore {
		t.Errorf("%d named, more %t", len(p.OverPart), p.OverPartMore)
	}
}
