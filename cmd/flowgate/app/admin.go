package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/flowgate/flowgate/cmd/flowgate/app/page"
	"github.com/flowgate/flowgate/internal/descriptors"
)

// check is one condition of readiness.
type check struct {
	name string
	// test returns what is wrong, nil if nothing is.
	test func() error
}

// adminServer serves metrics, health, status and changes.
type adminServer struct {
	listener net.Listener
	server   *http.Server
	// handler is that of the state the gateway is in: standing by, or active.
	handler atomic.Pointer[http.Handler]
}

// adminConnections is enough for who scrapes, and for the pages of many people: each holds
// two, one of them the stream of events.
const adminConnections = 160

// adminRoom is how many there may be.
func adminRoom() int { return min(adminConnections, descriptors.Share(16)) }

// newAdminServer opens the listener, so that a port in use stops the start.
func newAdminServer(addr string, log *slog.Logger) (*adminServer, error) {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("admin address %s (FLOWGATE_ADMIN_LISTEN): %w", addr, err)
	}
	bound := descriptors.Bound(l, adminRoom(), descriptors.Crowded)
	a := &adminServer{listener: bound}
	a.server = &http.Server{
		Handler:           http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { (*a.handler.Load()).ServeHTTP(w, r) }),
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       10 * time.Second,
		WriteTimeout:      30 * time.Second,
		IdleTimeout:       2 * time.Minute,
		ConnState:         bound.Yield,
		MaxHeaderBytes:    64 << 10,
		ErrorLog:          slog.NewLogLogger(log.With("component", "admin").Handler(), slog.LevelDebug),
	}
	return a, nil
}

// serve has h answer from now on.
func (a *adminServer) serve(h http.Handler) { a.handler.Store(&h) }

func (a *adminServer) run() error {
	if err := a.server.Serve(a.listener); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("admin server: %w", err)
	}
	return nil
}

func (a *adminServer) stop(ctx context.Context) {
	if a.server.Shutdown(ctx) != nil {
		_ = a.server.Close()
	}
}

// openAdmin serves the admin address, first as one that stands by.
func (g *gateway) openAdmin() (err error) {
	if g.admin, err = newAdminServer(g.cfg.Admin.Listen, g.log); err != nil {
		return err
	}
	g.admin.serve(g.standBy.handler())
	var serving sync.WaitGroup
	serving.Go(func() {
		if err := g.admin.run(); err != nil {
			g.fail(err)
		}
	})
	g.onStop("admin", func(ctx context.Context) error {
		g.admin.stop(ctx)
		serving.Wait()
		return nil
	})
	return nil
}

// metricsHandler exports what is registered.
func (g *gateway) metricsHandler() http.Handler {
	return promhttp.HandlerFor(g.registry, promhttp.HandlerOpts{
		ErrorLog:          slog.NewLogLogger(g.log.With("component", "metrics").Handler(), slog.LevelError),
		EnableOpenMetrics: true,
	})
}

// adminHandler is the admin address without its listener.
func (g *gateway) adminHandler() *http.ServeMux {
	mux := http.NewServeMux()
	pageRoutes(mux)
	mux.Handle("GET /metrics", g.metricsHandler())
	mux.HandleFunc("GET /livez", g.health(g.live))
	mux.HandleFunc("GET /readyz", g.health(g.ready))
	mux.HandleFunc("GET /api/v1/status", func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, g.status()) })
	g.watchRoutes(mux)
	a := newAuthority(g.cfg.Admin.Token)
	g.limitsRoutes(mux, a)
	g.weightsRoutes(mux, a)
	g.pauseRoutes(mux, a)
	g.deadLettersRoutes(mux, a)
	mux.HandleFunc("GET /api/v1/arrivals", a.guard(g.record))
	return mux
}

// pageRoutes adds the page. It is the same while the gateway stands by: it reads so in
// the status.
func pageRoutes(mux *http.ServeMux) {
	p := page.Handler()
	mux.Handle("GET /{$}", p)
	mux.Handle("GET /assets/", p)
}

// health answers 200 if all checks pass and else 503; with ?verbose it lists
// them.
func (g *gateway) health(checks func() []check) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		code, lines := http.StatusOK, ""
		for _, c := range checks() {
			if err := c.test(); err != nil {
				code = http.StatusServiceUnavailable
				lines += fmt.Sprintf("[-] %s: %v\n", c.name, err)
			} else {
				lines += fmt.Sprintf("[+] %s ok\n", c.name)
			}
		}
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.Header().Set("Cache-Control", "no-store")
		w.WriteHeader(code)
		if r.URL.Query().Has("verbose") || code != http.StatusOK {
			fmt.Fprint(w, lines)
			return
		}
		fmt.Fprintln(w, "ok")
	}
}

// staleAfter is how old the last look at the stream may be.
const staleAfter = 10 * time.Second

// live lists what must hold for the process not to be restarted.
func (g *gateway) live() []check {
	return []check{{"loops", func() error {
		if age := time.Since(g.heartbeat()); age > 6*staleAfter {
			return fmt.Errorf("the outlet's watch has not run for %s", age.Round(time.Second))
		}
		return nil
	}}}
}

// ready lists what must hold for producers to be sent here. A pressured gateway
// is ready: refusing is its work.
func (g *gateway) ready() []check {
	checks := []check{
		{"serving", func() error {
			if g.draining.Load() {
				return errors.New("shutting down")
			}
			return nil
		}},
		{"nats", func() error {
			for _, nc := range g.conns {
				if !nc.IsConnected() {
					return fmt.Errorf("connection %s is %s", nc.Opts.Name, nc.Status())
				}
			}
			return nil
		}},
		{"stream", func() error {
			if age := time.Since(g.shaper.Audit().At); age > staleAfter {
				return fmt.Errorf("not read for %s", age.Round(time.Second))
			}
			if g.door.Silent() {
				return errors.New("the broker does not confirm forwarded messages")
			}
			return nil
		}},
		{"ingress", func() error {
			if name := g.captured.Load(); name != nil {
				return fmt.Errorf("stream %s captures the ingress subjects: both it and the gateway answer producers; remove it or its subjects", *name)
			}
			return nil
		}},
		{"lease", func() error {
			if !g.lease.Valid() {
				return errors.New("lost")
			}
			return nil
		}},
	}
	if g.broker.Embedded() {
		checks = append(checks, check{"disk", func() error {
			if full := g.full.Load(); full != nil {
				return *full
			}
			return nil
		}})
	}
	if g.web != nil {
		checks = append(checks, check{"http", g.web.Failed})
	}
	return checks
}
