package page_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/flowgate/flowgate/cmd/flowgate/app/page"
)

type object = map[string]any

// fake is test data in the shape of the admin address: a surge that drains, made up from
// sines. The page against a real gateway is tested beside the gateway.
type fake struct {
	*httptest.Server
	mu      sync.Mutex
	status  object // fields that are not those of the surge
	token   string
	tenants int
	gone    bool // answers nothing
	standby bool // has no events
	kept    bool // events do not come through
	events  int  // streams that are open
	changes []string
	history int // how often it was asked for
	beat    time.Duration
}

var bounds = []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10}

// sampleAt is the second at, of a day whose every 15 minutes are alike.
func sampleAt(at time.Time, end time.Time) object {
	ago := end.Sub(at).Seconds()
	x := 900 - ago // seconds into the window
	offered := 160 + 30*math.Sin(x/40) + 8*math.Sin(x*1.7)
	if x > 240 && x < 480 {
		offered += 420
	}
	depth := 40 + 20*math.Sin(x/25)
	level, refused, transitions := "normal", object{}, []object(nil)
	switch {
	case x > 240 && x < 320:
		depth = 60 + (x-240)*120
	case x >= 320 && x < 480:
		depth = 9500 + 400*math.Sin(x/9)
	case x >= 480 && x < 640:
		depth = 9500 - (x-480)*52
	}
	admitted := offered
	if x >= 320 && x < 510 {
		level = "pressured"
		refused["backlog"] = max(0, offered-210)
		admitted = min(offered, 210)
	}
	if x > 240 && x < 480 {
		refused["rate_limited"] = 60 + 10*math.Sin(x)
		refused["tenant_backlog"] = 18.0
	}
	if int(x) == 320 {
		transitions = append(transitions, object{"at": at.UnixMilli(), "to": "pressured", "signal": "depth", "value": 10000, "bound": 10000})
	}
	if int(x) == 510 {
		transitions = append(transitions, object{"at": at.UnixMilli(), "to": "normal", "signal": "depth", "value": 7990, "bound": 8000})
	}
	total := 0.0
	for _, v := range refused {
		total += v.(float64)
	}
	slow := 1.0
	if x > 240 && x < 640 {
		slow = 3
	}
	counts := make([]int, len(bounds)+1)
	for i := range counts {
		center := 2.2 + 1.1*slow + .4*math.Sin(x/30)
		counts[i] = int(190 * math.Exp(-math.Pow(float64(i)-center, 2)/1.6))
	}
	inFlight := 1 + math.Round(2*math.Abs(math.Sin(x/3)))
	if slow > 1 {
		inFlight = 4
	}
	s := object{
		"at": at.UnixMilli(), "level": level, "paused": false, "breaker": "closed",
		"waiting": math.Round(depth), "in_flight": inFlight, "delayed": math.Round(depth / 60), "depth": math.Round(depth) + inFlight + math.Round(depth/60),
		"bytes": depth * 900, "low": 8000, "high": 10000, "max": 20000, "oldest_age_seconds": depth / 200, "time_to_high_seconds": nil, "drain_seconds": depth / 200,
		"admitted": admitted, "refused": total, "delivered": min(200, offered*.98+depth/20), "retried": math.Max(0, 2*math.Sin(x/50)), "dead_lettered": math.Max(0, math.Sin(x/90)-.7),
		"rate_configured": 200, "rate_effective": 200 - 40*(slow-1), "rate_reason": "latency", "lateness_p99_seconds": .0006 + .0004*math.Abs(math.Sin(x)),
		"cap": 4, "latency": object{"counts": counts}, "latency_p50": .004 * slow, "latency_p95": .011 * slow, "latency_p99": .024 * slow, "target_latency": .1,
	}
	if len(refused) > 0 {
		s["refused_by"] = refused
	}
	if transitions != nil {
		s["transitions"] = transitions
	}
	return s
}

func serveFake(t *testing.T, prefix string) *fake {
	t.Helper()
	f := &fake{status: object{}, tenants: 12, beat: time.Second}
	mux := http.NewServeMux()
	mux.Handle("GET /{$}", page.Handler())
	mux.Handle("GET /assets/", page.Handler())
	mux.HandleFunc("GET /api/v1/status", func(w http.ResponseWriter, _ *http.Request) { reply(w, f.state()) })
	mux.HandleFunc("GET /api/v1/history", func(w http.ResponseWriter, _ *http.Request) {
		f.mu.Lock()
		f.history++
		f.mu.Unlock()
		now := time.Now().Truncate(time.Second)
		var samples []object
		for at := now.Add(-899 * time.Second); !at.After(now); at = at.Add(time.Second) {
			samples = append(samples, sampleAt(at, now))
		}
		reply(w, object{"every_seconds": 1, "latency_bounds": bounds, "samples": samples})
	})
	mux.HandleFunc("GET /api/v1/events", f.stream)
	mux.HandleFunc("GET /api/v1/tenants", f.listTenants)
	mux.HandleFunc("GET /api/v1/refusals", func(w http.ResponseWriter, r *http.Request) {
		var list []object
		for i := range 6 {
			list = append(list, object{"at": time.Now().Add(-time.Duration(i) * 7 * time.Second), "reason": []string{"backlog", "rate_limited"}[i%2], "scope": []string{"", "tenant"}[i%2],
				"rule": []string{"backpressure high 10000", "token-bucket:50/s,burst=100"}[i%2], "depth": 9876 - i, "retry_after_ms": 2350 * (i + 1), "id": fmt.Sprintf("order-%d", 4711-i), "transport": "nats", "enforced": true})
		}
		reply(w, object{"tenant": r.URL.Query().Get("tenant"), "refusals": list})
	})
	mux.HandleFunc("GET /api/v1/limits", func(w http.ResponseWriter, _ *http.Request) {
		reply(w, object{"broken": []object{}, "keys": object{}, "limits": []object{
			{"scope": "tenant", "key": "acme", "limit": "token-bucket:50/s,burst=100", "source": "live", "in_force": true, "author": "ann", "reason": "nightly import, ticket 4711", "at": time.Now().Add(-time.Hour)},
			{"scope": "tenant", "key": "*", "limit": "token-bucket:1000/s,burst=2000", "source": "environment", "in_force": true},
			{"scope": "user", "key": "a/b", "limit": "fixed-window:10/m", "source": "environment", "in_force": true},
		}})
	})
	mux.HandleFunc("GET /api/v1/dead-letters", func(w http.ResponseWriter, r *http.Request) {
		all := []object{
			{"seq": 2, "id": "acme/o-2", "tenant": "acme", "topic": "orders.new", "class": "permanent", "error": "no such column: totl", "attempts": 1, "bytes": 2311, "died_at": time.Now().Add(-time.Minute)},
			{"seq": 1, "id": "globex/<img src=x onerror=alert(1)>", "tenant": "globex", "topic": "orders", "class": "timeout", "error": "<script>alert(1)</script>", "attempts": 5, "bytes": 12, "died_at": time.Now().Add(-time.Hour)},
		}
		if tenant := r.URL.Query().Get("tenant"); tenant != "" {
			all = slices.DeleteFunc(all, func(o object) bool { return o["tenant"] != tenant })
		}
		reply(w, object{"next": nil, "dead_letters": all})
	})
	change := func(w http.ResponseWriter, r *http.Request) {
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.token != "" && r.Header.Get("Authorization") != "Bearer "+f.token {
			w.WriteHeader(http.StatusUnauthorized)
			reply(w, object{"detail": "this needs the header Authorization"})
			return
		}
		var body object
		_ = json.NewDecoder(r.Body).Decode(&body)
		text, _ := json.Marshal(body)
		f.changes = append(f.changes, r.Method+" "+r.URL.String()+" "+string(text))
		if strings.HasSuffix(r.URL.Path, "pause") && body["for"] == "4h" {
			w.WriteHeader(http.StatusBadRequest)
			reply(w, object{"detail": "for: 4h is too long for this test"})
			return
		}
		reply(w, object{"scope": "tenant", "key": "acme", "limit": "token-bucket:5/s", "seq": 2, "payload": "{\"total\": 5}", "headers": object{"X": []string{"a"}}, "bytes": 12, "count": 1, "next": nil})
	}
	for _, pattern := range []string{"POST /api/v1/", "PUT /api/v1/", "DELETE /api/v1/", "GET /api/v1/dead-letters/{seq}"} {
		mux.HandleFunc(pattern, change)
	}
	f.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f.mu.Lock()
		gone := f.gone
		f.mu.Unlock()
		if gone {
			panic(http.ErrAbortHandler)
		}
		http.StripPrefix(prefix, mux).ServeHTTP(w, r)
	}))
	t.Cleanup(f.Close)
	return f
}

func (f *fake) set(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
}

// asked is how often the history was since it had been before times; it waits for the
// first.
func (f *fake) asked(before int) (n int) {
	for end := time.Now().Add(10 * time.Second); n == 0 && time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		f.set(func() { n = f.history - before })
	}
	return n
}

// state is a status with the newest sample in it.
func (f *fake) state() object {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := time.Now()
	s := object{
		"name": "flowgate", "version": "v1.2.3", "mode": "enforce", "level": "normal", "paused": false, "signals": []string{}, "pressured_since": nil,
		"depth": object{"waiting": 56, "in_flight": 3, "delayed": 1, "total": 60}, "watermarks": object{"low": 8000, "high": 10000, "max": 20000}, "oldest_age_seconds": .3,
		"rate":          object{"configured": 200, "effective": 200, "reason": "configured", "delivered": 151.2, "admitted": 150.8, "refused": 0},
		"drain_seconds": nil, "time_to_high_seconds": 4123.0, "breaker": "closed", "dead_letters": 2, "replica": object{"id": "gate-1", "leader": true},
		"sampled_at": now, "stale": false, "hint_seconds": 0, "slots": 0, "cap": 4, "target_latency_seconds": .1,
	}
	maps.Copy(s, f.status)
	return s
}

func (f *fake) stream(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	standby, kept := f.standby, f.kept
	f.mu.Unlock()
	if kept {
		w.Header().Set("Content-Type", "text/event-stream")
		w.(http.Flusher).Flush()
		<-r.Context().Done()
		return
	}
	if standby {
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	f.set(func() { f.events++ })
	defer f.set(func() { f.events-- })
	w.Header().Set("Content-Type", "text/event-stream")
	for {
		f.mu.Lock()
		gone := f.gone
		f.mu.Unlock()
		if gone {
			return
		}
		now := time.Now().Truncate(time.Second)
		status, _ := json.Marshal(f.state())
		sample, _ := json.Marshal(sampleAt(now, now))
		fmt.Fprintf(w, "event: status\ndata: %s\n\nevent: sample\ndata: %s\n\n", status, sample)
		w.(http.Flusher).Flush()
		select {
		case <-r.Context().Done():
			return
		case <-time.After(f.beat):
		}
	}
}

func (f *fake) listTenants(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	limit, _ := strconv.Atoi(q.Get("limit"))
	offset, _ := strconv.Atoi(q.Get("offset"))
	list := []object{}
	for i := range f.tenants {
		name := fmt.Sprintf("tenant-%05d", i)
		if i == 0 {
			name = "acme"
		}
		if strings.Contains(name, q.Get("search")) {
			list = append(list, object{"tenant": name, "depth": (i * 37) % 1000, "weight": 1 + i%3, "admitted": float64(i%17) * 1.5, "refused": float64(i % 5), "refused_total": i * 3,
				"last_reason": []string{"", "backlog", "rate_limited"}[i%3], "oldest_age_seconds": float64((i*37)%1000) / 200})
		}
	}
	if q.Get("sort") == "depth" {
		slices.SortStableFunc(list, func(a, b object) int { return b["depth"].(int) - a["depth"].(int) })
	}
	if q.Get("order") == "asc" {
		slices.Reverse(list)
	}
	reply(w, object{"total": len(list), "tenants": list[min(offset, len(list)):min(offset+limit, len(list))]})
}

func reply(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v)
}
