package app

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nats.go/micro"

	"github.com/flowgate/flowgate/cmd/flowgate/app/broker"
)

// watchEvery is how often the gateway looks for what only a look can find: dead
// letters, streams that capture the ingress, and a full disk while nobody publishes.
const watchEvery = 5 * time.Second

// storeGone is how long the embedded broker may confirm nothing.
const storeGone = 10 * time.Second

// errStoreGone ends a gateway whose embedded broker could not write once: its store
// does not try again by itself, and reads what it has when it is started anew. While
// the disk cannot be written the gateway stays, delivers, and tells producers.
var errStoreGone = errors.New("the embedded broker failed to write to its store and does not recover by itself, and the disk can be written now: start the gateway again")

func (g *gateway) watch(ctx context.Context) error {
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	var silentSince time.Time
	for {
		g.lookAround(ctx)
		if !g.door.Silent() || !g.broker.Embedded() {
			silentSince = time.Time{}
		} else if silentSince.IsZero() {
			silentSince = time.Now()
		} else if time.Since(silentSince) >= storeGone {
			if err := g.broker.Writable(); err == nil {
				return errStoreGone
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

func (g *gateway) lookAround(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, watchEvery)
	defer cancel()
	g.storage.Store(g.broker.Left(ctx, g.js, topology(g.cfg)))
	switch info, err := g.assets.DLQ.Info(ctx); {
	case err == nil:
		g.deadLetters.Store(info.State.Msgs)
	case errors.Is(err, jetstream.ErrStreamNotFound):
		g.deadLetters.Store(0)
		if _, err := broker.EnsureDeadLetters(ctx, g.js, topology(g.cfg)); err != nil {
			g.log.Error("the dead-letter stream was deleted and could not be made again", "error", err)
		} else {
			g.log.Warn("the dead-letter stream was deleted; it was made again, empty")
		}
	}
	if full := g.broker.Room(); full == nil {
		g.full.Store(nil)
	} else if g.full.Swap(&full) == nil {
		g.log.Error("the disk is full", "error", full)
	}
	name, err := broker.Capturing(ctx, g.js, g.cfg.Ingress.Prefix)
	if err != nil {
		return // the stream check of /readyz tells
	}
	if was := g.captured.Load(); name != "" && was == nil {
		g.log.Error("a stream captures the ingress subjects: both it and the gateway answer producers", "stream", name)
		g.captured.Store(&name)
	} else if name == "" && was != nil {
		g.log.Info("the ingress subjects are the gateway's alone again")
		g.captured.Store(nil)
	}
}

// newService makes the NATS micro service: `nats micro list|info|stats` show it.
func (g *gateway) newService() (micro.Service, error) {
	control := g.conns[0]
	service, err := micro.AddService(control, micro.Config{
		Name:        g.cfg.Name,
		Version:     semver(g.version),
		Description: "flowgate: backpressure gateway",
		Metadata:    map[string]string{"replica": g.id, broker.IngressKey: g.cfg.Ingress.Prefix + ".>"},
	})
	if err != nil {
		return nil, fmt.Errorf("NATS micro service: %w", err)
	}
	endpoints := g.pauseEndpoints()
	endpoints["status"] = func(r micro.Request) {
		// The requester is gone if this fails.
		_ = r.RespondJSON(g.status())
	}
	for _, name := range slices.Sorted(maps.Keys(endpoints)) {
		if err := service.AddEndpoint(name, endpoints[name], micro.WithEndpointSubject(g.cfg.Name+".admin."+name)); err != nil {
			_ = service.Stop()
			return nil, fmt.Errorf("NATS micro service: %w", err)
		}
	}
	return service, nil
}

// semver makes a version that micro accepts.
func semver(version string) string {
	v := strings.TrimPrefix(version, "v")
	if strings.Count(strings.SplitN(v, "-", 2)[0], ".") == 2 {
		return v
	}
	return "0.0.0-dev"
}
