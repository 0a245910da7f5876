package client

import (
	"encoding/json"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
)

// pressure is the scope of the lanes of tenants that the gateway would refuse.
const pressure = "pressure"

const (
	// stale is how long a broadcast counts. It comes each second.
	stale = 3 * time.Second
	// unknownGap is the gap between first tries while nothing is delivered.
	unknownGap = time.Second
)

// ear listens to the broadcast.
type ear struct {
	sub   *nats.Subscription
	lanes *lanes

	mu    sync.Mutex
	heard told
	at    time.Time
	// silence ends what was heard.
	silence *time.Timer
}

// told is what matters to a producer of what the gateway tells.
type told struct {
	Type string `json:"type"`
	Rate struct {
		// Effective is absent if the rate is unlimited.
		Effective *float64 `json:"effective"`
		Delivered float64  `json:"delivered"`
	} `json:"rate"`
	// Hint is absent if the first try of a message would be admitted.
	Hint *struct {
		RetryAfterMS int64 `json:"retry_after_ms"`
	} `json:"hint"`
	// OverPart are the tenants that the hint is for; absent: everyone.
	OverPart *[]string `json:"over_part"`
}

// refuses reports whether a tenant's first try would be refused.
func (t *told) refuses(tenant string) bool {
	return t.Hint != nil && (t.OverPart == nil || slices.Contains(*t.OverPart, tenant))
}

// gap is the time in which one message of a tenant leaves the backlog.
func (t *told) gap() time.Duration {
	rate := t.Rate.Delivered
	if t.Rate.Effective != nil {
		rate = *t.Rate.Effective
	}
	if t.OverPart != nil {
		rate /= float64(max(1, len(*t.OverPart)))
	}
	if !(rate > 0) {
		return unknownGap
	}
	return min(time.Duration(float64(time.Second)/rate), maxGuess)
}

func listen(nc *nats.Conn, subject string, l *lanes) (*ear, error) {
	e := &ear{lanes: l}
	e.silence = time.AfterFunc(time.Hour, e.forget)
	e.silence.Stop()
	var err error
	e.sub, err = nc.Subscribe(subject, func(m *nats.Msg) { e.hear(m.Data) })
	return e, err
}

func (e *ear) hear(body []byte) {
	var t told
	if err := json.Unmarshal(body, &t); err != nil || t.Type != "io.flowgate.v1.pressure" {
		return
	}
	e.mu.Lock()
	e.heard, e.at = t, time.Now()
	e.mu.Unlock()
	e.silence.Reset(stale)
	e.lanes.open(pressure, t.refuses)
	if t.Hint != nil {
		e.lanes.pace(pressure, t.gap())
	}
}

// forget lets all go: who told of the pressure may be gone.
func (e *ear) forget() {
	e.mu.Lock()
	if time.Since(e.at) < stale {
		e.mu.Unlock()
		return
	}
	e.heard = told{}
	e.mu.Unlock()
	e.lanes.open(pressure, func(string) bool { return false })
}

// slow says whether a tenant's first tries have to slow down, and to what gap.
func (e *ear) slow(tenant string) (time.Duration, bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if time.Since(e.at) >= stale || !e.heard.refuses(tenant) {
		return 0, false
	}
	return e.heard.gap(), true
}

func (e *ear) close() error {
	err := e.sub.Unsubscribe()
	e.silence.Stop()
	if errors.Is(err, nats.ErrConnectionClosed) || errors.Is(err, nats.ErrBadSubscription) {
		return nil
	}
	return err
}
