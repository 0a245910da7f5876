package app

import (
	"encoding/json"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/flowgate/flowgate/internal/history"
)

const (
	// viewerPatience is how long a viewer may take to read what is sent.
	viewerPatience = 10 * time.Second
	// keptForOthers are the connections of the admin address that viewers leave.
	keptForOthers = 8
)

// mostViewers bounds those who hold a connection for good, of so many that there are.
func mostViewers(connections int) int { return max(1, min(64, connections-keptForOthers)) }

// events sends a status and a sample a second to all who look on, as server-sent events.
// Both are encoded once for all, and not at all while nobody looks.
type events struct {
	most int

	mu      sync.Mutex
	viewers int
	frame   []byte
	next    chan struct{} // closed once there is another frame
	over    bool          // nothing comes any more
}

func newEvents(most int) *events { return &events{most: most, next: make(chan struct{})} }

// publish has both sent.
func (e *events) publish(status Status, sample history.Sample) {
	e.mu.Lock()
	looked := e.viewers > 0
	e.mu.Unlock()
	if !looked {
		return
	}
	frame := encodeFrame(status, &sample)
	e.mu.Lock()
	defer e.mu.Unlock()
	e.frame = frame
	close(e.next)
	e.next = make(chan struct{})
}

// end sends all viewers away.
func (e *events) end() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.over {
		e.over = true
		close(e.next)
	}
}

// enter gives one more viewer its place; false: there is none.
func (e *events) enter() (next <-chan struct{}, ok bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.over || e.viewers >= e.most {
		return nil, false
	}
	e.viewers++
	return e.next, true
}

func (e *events) leave() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.viewers--
}

// latest is the newest frame, and what tells of the one after; nil at the end.
func (e *events) latest() (frame []byte, next <-chan struct{}) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.over {
		return nil, nil
	}
	return e.frame, e.next
}

// serve sends first, and then what is published, until the viewer leaves. One who is slow
// misses what came in between.
func (e *events) serve(w http.ResponseWriter, r *http.Request, first func() []byte) {
	if r.Header.Get("Sec-Fetch-Site") == "cross-site" {
		writeProblem(w, http.StatusForbidden, "a page of another origin may not look on")
		return
	}
	next, ok := e.enter()
	if !ok {
		w.Header().Set("Retry-After", "5")
		w.Header().Set("Connection", "close") // its place is for others
		writeProblem(w, http.StatusServiceUnavailable, "too many look on already; at most "+strconv.Itoa(e.most)+" can")
		return
	}
	defer e.leave()
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Accel-Buffering", "no") // a proxy must pass on what there is
	if r.Method == http.MethodHead {
		return
	}
	c := http.NewResponseController(w)
	// The server's own deadlines are for answers that end. One who does not read is cut off.
	_ = c.SetReadDeadline(time.Time{})
	for frame := first(); frame != nil; {
		_ = c.SetWriteDeadline(time.Now().Add(viewerPatience))
		if _, err := w.Write(frame); err != nil {
			return
		}
		if c.Flush() != nil {
			return
		}
		select {
		case <-r.Context().Done():
			return
		case <-next:
		}
		frame, next = e.latest()
	}
}

// encodeFrame makes two events; there may be no sample yet.
func encodeFrame(status Status, sample *history.Sample) []byte {
	frame := appendEvent(nil, "status", status)
	if sample != nil {
		frame = appendEvent(frame, "sample", sample)
	}
	return frame
}

func appendEvent(frame []byte, name string, v any) []byte {
	text, err := json.Marshal(v)
	if err != nil {
		return frame // not with numbers that JSON has
	}
	frame = append(frame, "event: "+name+"\ndata: "...)
	return append(append(frame, text...), "\n\n"...)
}

// watchRoutes adds what those who look on ask for.
func (g *gateway) watchRoutes(mux *http.ServeMux) {
	mux.HandleFunc("GET /api/v1/events", func(w http.ResponseWriter, r *http.Request) {
		g.events.serve(w, r, func() []byte {
			if sample, ok := g.history.Newest(); ok {
				return encodeFrame(g.status(), &sample)
			}
			return encodeFrame(g.status(), nil)
		})
	})
	mux.HandleFunc("GET /api/v1/history", g.showHistory)
	mux.HandleFunc("GET /api/v1/tenants", g.listTenants)
	mux.HandleFunc("GET /api/v1/refusals", g.listRefusals)
}
