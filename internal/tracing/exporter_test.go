package tracing

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	sdk "go.opentelemetry.io/otel/sdk/trace"

	"github.com/flowgate/flowgate/internal/bubble"
)

// collector is one that a test breaks.
type collector struct {
	broken atomic.Bool
	hangs  atomic.Bool
	got    atomic.Int64
}

func (c *collector) ExportSpans(ctx context.Context, spans []sdk.ReadOnlySpan) error {
	if c.hangs.Load() {
		<-ctx.Done()
		return ctx.Err()
	}
	if c.broken.Load() {
		return errors.New(strings.Repeat("no ", 1000))
	}
	c.got.Add(int64(len(spans)))
	return nil
}

func (c *collector) Shutdown(context.Context) error { return nil }

// run starts a tracer; stop ends it.
func run(t *testing.T, to sdk.SpanExporter, log *slog.Logger) (tr *Tracer, stop func()) {
	t.Helper()
	tr, err := New(Config{Service: "flowgate", Version: "v1", Ingress: "ingress", Backlog: "flowgate.backlog", Consumer: "http"}, Deps{Exporter: to, Logger: log})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- tr.Run(ctx) }()
	return tr, func() {
		t.Helper()
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}

func admit(tr *Tracer) {
	_, done := tr.Admit(Message{Tenant: "acme"}, "nats", time.Now())
	done(nil)
}

// An hour without a collector is two lines in the log, and costs messages nothing.
func TestABrokenCollectorIsToldOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bubble.Log
		c := &collector{}
		tr, stop := run(t, c, log.Logger(slog.LevelDebug))
		synctest.Wait()
		for second := range 3600 {
			c.broken.Store(second > 60 && second < 3000 && second%40 > 5) // it comes and goes, too
			admit(tr)
			time.Sleep(time.Second)
		}
		c.broken.Store(false)
		stop()
		if n := strings.Count(log.String(), "\n"); n != 2 || strings.Count(log.String(), "does not take spans") != 1 || strings.Count(log.String(), "takes spans again") != 1 || len(log.String()) > 1000 {
			t.Errorf("%d lines:\n%s", n, log.String())
		}
		if c.got.Load() < 600 {
			t.Errorf("%d spans arrived", c.got.Load())
		}
	})
}

// A collector that hangs holds up neither messages nor the end for more than two seconds,
// and what it does not take does not pile up.
func TestAHangingCollectorHoldsNothingUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &collector{}
		c.hangs.Store(true)
		tr, stop := run(t, c, slog.New(slog.DiscardHandler))
		synctest.Wait()
		began := time.Now()
		for range 100_000 {
			admit(tr)
		}
		if took := time.Since(began); took != 0 {
			t.Errorf("messages waited %s", took)
		}
		time.Sleep(time.Minute)
		began = time.Now()
		stop() // all goroutines end, else the bubble fails
		if took := time.Since(began); took > flushTime {
			t.Errorf("the end took %s", took)
		}
		c.hangs.Store(false)
		admit(tr) // after the end it is nothing
	})
}
