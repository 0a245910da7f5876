package app

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/flowgate/flowgate/internal/backpressure"
)

// Pressure is what the gateway tells all producers of its backlog, in the shape of
// Status: a core NATS message on <NAME>.pressure at every change of the level and each
// second. Fields may come; none changes its meaning under this type.
type Pressure struct {
	Type       string      `json:"type"` // io.flowgate.v1.pressure
	Name       string      `json:"name"`
	Level      string      `json:"level"` // normal or pressured
	Paused     bool        `json:"paused"`
	Depth      DepthStatus `json:"depth"`
	Watermarks Watermarks  `json:"watermarks"`
	Rate       RateStatus  `json:"rate"`
	// DrainSeconds and TimeToHigh are those of Status.
	DrainSeconds *float64 `json:"drain_seconds"`
	TimeToHigh   *float64 `json:"time_to_high_seconds"`
	// Signals are those that hold the level at pressured; empty at normal.
	Signals []string `json:"signals"`
	// Hint is what the first try of a message would be told now; absent if it would
	// be admitted.
	Hint *PressureHint `json:"hint,omitempty"`
	// OverPart are tenants that the hint is for, at most 16 of them, and the others
	// are still admitted; absent: it is for everyone.
	OverPart []string `json:"over_part,omitzero"`
	// OverPartMore: there are more of them than are named.
	OverPartMore bool      `json:"over_part_more,omitempty"`
	SentAt       time.Time `json:"sent_at"`
}

// PressureHint is a NAK's.
type PressureHint struct {
	RetryAfterMS int64 `json:"retry_after_ms"`
}

const (
	pressureType = "io.flowgate.v1.pressure"
	// pressureEvery is how often it is told, change or none.
	pressureEvery = time.Second
	// pressureGap is the least time between two: what changes more often is told at this
	// pace.
	pressureGap = 50 * time.Millisecond
	// mostOverPart bounds the tenants named in a message.
	mostOverPart = 16
)

// broadcast tells producers of the pressure before they are refused.
type broadcast struct {
	nc      *nats.Conn
	subject string
	// speaks reports whether this process is the one to tell.
	speaks func() bool
	// changed hears of changes of the level.
	changed <-chan struct{}
	read    func() Pressure
	log     *slog.Logger
}

func (g *gateway) newBroadcast() *broadcast {
	return &broadcast{
		nc: g.conns[0], subject: g.cfg.Names().Pressure, log: g.log.With("component", "broadcast"),
		speaks:  func() bool { return g.lease.Valid() },
		changed: g.backlog.Changed(),
		read:    g.pressure,
	}
}

// Run tells until ctx ends.
func (b *broadcast) Run(ctx context.Context) error {
	next := time.NewTimer(0)
	defer next.Stop()
	failing := false
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-b.changed:
		case <-next.C:
		}
		err := b.tell()
		if err != nil && !failing {
			b.log.Warn("producers cannot be told of the pressure", "subject", b.subject, "error", err)
		}
		failing = err != nil
		next.Reset(pressureEvery)
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pressureGap):
		}
	}
}

func (b *broadcast) tell() error {
	// While NATS is away the client would keep what is published, and send it when it
	// is old.
	if !b.speaks() || !b.nc.IsConnected() {
		return nil
	}
	body, err := json.Marshal(b.read())
	if err != nil {
		return fmt.Errorf("encode: %w", err)
	}
	return b.nc.Publish(b.subject, body)
}

// pressure reads what is told.
func (g *gateway) pressure() Pressure {
	st := g.status()
	p := Pressure{
		Type: pressureType, Name: st.Name, Level: st.Level, Paused: st.Paused,
		Depth: st.Depth, Watermarks: st.Watermarks, Rate: st.Rate,
		DrainSeconds: st.DrainSeconds, TimeToHigh: st.TimeToHigh,
		Signals: st.Signals, SentAt: time.Now().UTC(),
	}
	now := g.clock.now()
	b := g.backlog.Snapshot(now)
	hint, full := g.hint(now, b)
	if hint > 0 {
		p.Hint = &PressureHint{RetryAfterMS: int64((hint + time.Millisecond - 1) / time.Millisecond)}
	}
	if bool(g.cfg.Backpressure.Fair) && !full {
		p.overPart(b)
	}
	return p
}

// overPart names the tenants over their part, within bounds.
func (p *Pressure) overPart(s backpressure.Snapshot) {
	p.OverPart = []string{}
	for _, holder := range s.OverPart[:min(len(s.OverPart), mostOverPart)] {
		p.OverPart = append(p.OverPart, holder.Tenant)
	}
	p.OverPartMore = s.TenantsOverPart > len(p.OverPart)
}
