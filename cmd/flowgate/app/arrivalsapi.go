package app

import (
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/flowgate/flowgate/internal/arrivals"
	"github.com/flowgate/flowgate/internal/units"
)

const (
	// mostRecordings is how many are made at once: each takes up to 30 MB.
	mostRecordings = 4
	// recordedEvery is how often what was recorded is sent.
	recordedEvery = time.Second
)

// recorder shares out what comes to the front door to those who record it. While nobody
// does, a message costs the look at one number.
type recorder struct {
	on   atomic.Bool
	over chan struct{} // closed when the gateway ends

	mu   sync.RWMutex
	logs map[*arrivals.Log]struct{}
}

func newRecorder() *recorder {
	return &recorder{over: make(chan struct{}), logs: map[*arrivals.Log]struct{}{}}
}

// Recording implements ingress.Recorder.
func (r *recorder) Recording() bool { return r.on.Load() }

// Arrived implements ingress.Recorder.
func (r *recorder) Arrived(at int64, tenant, topic, id string, bytes int) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	for l := range r.logs {
		l.Add(at, tenant, topic, id, bytes)
	}
}

// begin adds a log; false: there are too many.
func (r *recorder) begin(l *arrivals.Log) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.logs) >= mostRecordings {
		return false
	}
	r.logs[l] = struct{}{}
	r.on.Store(true)
	return true
}

func (r *recorder) end(l *arrivals.Log) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.logs, l)
	r.on.Store(len(r.logs) > 0)
}

// record sends all that comes, as a recording, until the client leaves, the gateway ends or,
// if for is given, so long.
func (g *gateway) record(w http.ResponseWriter, r *http.Request) {
	var enough <-chan time.Time
	if text := r.URL.Query().Get("for"); text != "" {
		length, err := units.ParseDuration(text)
		if err != nil || length <= 0 {
			writeProblem(w, http.StatusBadRequest, fmt.Sprintf("for: %q is no duration above 0, like 1h", text))
			return
		}
		timer := time.NewTimer(length)
		defer timer.Stop()
		enough = timer.C
	}
	log := arrivals.NewLog(g.clock.now())
	if !g.recorder.begin(log) {
		w.Header().Set("Retry-After", "60")
		writeProblem(w, http.StatusServiceUnavailable, "too many record already; at most "+strconv.Itoa(mostRecordings)+" can at once")
		return
	}
	defer g.recorder.end(log)
	h := w.Header()
	h.Set("Content-Type", "text/csv; charset=utf-8")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Accel-Buffering", "no") // a proxy must pass on what there is
	c := http.NewResponseController(w)
	_ = c.SetReadDeadline(time.Time{}) // the server's own is for answers that end
	tick := time.NewTicker(recordedEvery)
	defer tick.Stop()
	var spare []byte
	for ended := false; ; {
		text := log.Take(g.clock.now(), spare)
		_ = c.SetWriteDeadline(time.Now().Add(viewerPatience))
		if _, err := w.Write(text); err != nil {
			return
		}
		if c.Flush() != nil || ended {
			return
		}
		spare = text
		select {
		case <-r.Context().Done():
			return
		case <-g.recorder.over:
			ended = true
		case <-enough:
			ended = true
		case <-log.Full():
		case <-tick.C:
		}
	}
}
