package ingress

import (
	"math"
	"time"

	"github.com/nats-io/nats.go"
)

// Rehearsal is the front door without a connection, moved by hand and by a clock of the
// caller's: for who asks what a gateway would decide. What reads a message, decides on it
// and holds it is the door's own. It is not safe for concurrent use.
type Rehearsal struct {
	door    Door
	holding *holding
	held    map[*nats.Msg]Letter
	names   map[string]string // subjects by tenant and topic
	payload []byte
	decided func(Decision)
}

// Letter is a message that comes to the door.
type Letter struct {
	Tenant, Topic string
	// ID is its message id, empty without one.
	ID    string
	Bytes int
	// Tag is the caller's.
	Tag int
}

// Decision is what becomes of one.
type Decision struct {
	Letter
	// Refused is nil for what is admitted. Shadow is what would have refused it in
	// another mode.
	Refused, Shadow *Refusal
	// Size is what is stored of what is admitted.
	Size int
}

// NewRehearsal makes one that tells of each decision, also of what was held before.
func NewRehearsal(cfg Config, mode Mode, limits Limits, pressure Backpressure, decided func(Decision)) *Rehearsal {
	return &Rehearsal{
		door: Door{
			mode: mode, prefix: cfg.Prefix + ".", ingress: cfg.Prefix, backlog: "flowgate.backlog.", own: "flowgate",
			maxPayload: int(cfg.MaxPayload), tenants: cfg.Tenants, limits: limits, pressure: pressure,
			shut: func() *Refusal { return nil },
		},
		holding: &holding{most: int64(min(time.Duration(cfg.Hold), longestHold)), lines: map[string]*line{}},
		held:    map[*nats.Msg]Letter{}, names: map[string]string{}, payload: make([]byte, int(cfg.MaxPayload)+1), decided: decided,
	}
}

// Arrive takes a message at the instant now.
func (r *Rehearsal) Arrive(now int64, l Letter) {
	in := incoming{msg: r.message(l), at: now}
	wall := func() time.Time { return time.Unix(0, now) }
	v := r.door.read(in, wall)
	if v.refused == nil {
		ahead, behind := r.holding.ahead(v.tenant)
		r.door.judge(in, &v, now, ahead, wall)
		if (behind && v.refused == nil || v.refused.passing()) && r.holding.put(heldMessage{in: in, v: v}, v.refused.wait(), now) {
			r.held[in.msg] = l
			return
		}
		if behind && v.refused == nil {
			v.refused = &Refusal{Reason: Overloaded, Text: "the gateway cannot keep up", Wait: overloadWait}
		}
	}
	r.conclude(now, l, &v)
}

// Due is when Release has something to do; the largest instant if it has not.
func (r *Rehearsal) Due() int64 {
	if r.holding.n == 0 {
		return math.MaxInt64
	}
	return r.holding.due[0].at
}

// Release decides on what was held until now.
func (r *Rehearsal) Release(now int64) {
	for {
		m, ok := r.holding.take(now)
		if !ok {
			return
		}
		r.door.judge(m.in, &m.v, now, 0, func() time.Time { return time.Unix(0, now) })
		if m.v.refused.passing() && r.holding.again(m, m.v.refused.Wait, now) {
			continue
		}
		l := r.held[m.in.msg]
		delete(r.held, m.in.msg)
		r.conclude(now, l, &m.v)
	}
}

func (r *Rehearsal) conclude(now int64, l Letter, v *verdict) {
	d := Decision{Letter: l, Refused: v.refused, Shadow: v.shadow}
	if v.refused == nil {
		d.Size = v.out.Size()
		r.door.pressure.Enter(now, v.ask, d.Size)
	}
	r.decided(d)
}

// message is one as a client would publish it.
func (r *Rehearsal) message(l Letter) *nats.Msg {
	key := l.Tenant + "." + l.Topic
	subject, ok := r.names[key]
	if !ok {
		subject = r.door.prefix + key
		r.names[key] = subject
	}
	m := &nats.Msg{Subject: subject, Data: r.payload[:min(l.Bytes, len(r.payload))]}
	if l.ID != "" {
		m.Header = nats.Header{msgIDHeader: {l.ID}}
	}
	return m
}
