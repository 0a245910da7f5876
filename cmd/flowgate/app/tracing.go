package app

import (
	"context"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/flowgate/flowgate/internal/consumers"
	"github.com/flowgate/flowgate/internal/ingress"
	"github.com/flowgate/flowgate/internal/tracing"
)

// trace sends spans until the function it gives is called, after the last message.
func (a *App) trace() (stop func()) {
	if a.opts.Tracer == nil {
		return func() {}
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := a.opts.Tracer.Run(ctx); err != nil { // no reason to end a gateway
			a.opts.Logger.Warn("nothing is traced", "error", err)
		}
	})
	return func() {
		cancel()
		running.Wait()
	}
}

// doorTracer makes the door's spans.
type doorTracer struct{ *tracing.Tracer }

// Admit implements ingress.Tracer.
func (t doorTracer) Admit(a ingress.Arrival) (nats.Header, func(*ingress.Refusal)) {
	header, done := t.Tracer.Admit(tracing.Message{
		Tenant: a.Tenant, Subject: a.Subject, ID: a.ID, Headers: a.Header, Bytes: a.Bytes,
	}, a.Transport, time.Unix(0, a.At))
	return header, func(r *ingress.Refusal) {
		if r == nil {
			done(nil)
			return
		}
		done(&tracing.Refusal{
			Reason: string(r.Reason), Scope: r.Scope, Limit: r.Limit,
			Failed: r.Reason == ingress.Overloaded,
		})
	}
}

// deskTracer makes the desk's spans.
type deskTracer struct {
	*tracing.Tracer
	backlog string // the subject prefix
}

func (t deskTracer) message(d consumers.Delivery) tracing.Message {
	return tracing.Message{
		Tenant: d.Tenant, Subject: t.backlog + "." + d.Tenant + "." + d.Topic, ID: d.ID,
		Headers: d.Headers, Bytes: len(d.Payload), Seq: d.Seq,
	}
}

// Wait implements consumers.Tracer.
func (t deskTracer) Wait(d consumers.Delivery, lost error) {
	t.Tracer.Wait(t.message(d), d.AdmittedAt, d.ReleasedAt, lost)
}

// Deliver implements consumers.Tracer.
func (t deskTracer) Deliver(d consumers.Delivery, batch int) (map[string][]string, func(consumers.Outcome)) {
	headers, done := t.Tracer.Deliver(t.message(d), tracing.Attempt{Number: d.Attempt, Batch: batch})
	return headers, func(o consumers.Outcome) {
		done(tracing.Result{Outcome: o.Result(), Verdict: o.Kind.String(), Took: o.Took, Err: o.Err})
	}
}
