package trial

import (
	"context"
	"fmt"
	"time"

	"github.com/flowgate/flowgate/loadtest/scenario"
)

// breakThings does what the scenario says, each at its time, until ctx ends.
func (t *trial) breakThings(ctx context.Context) error {
	for _, f := range t.s.Faults {
		if !t.sleep(ctx, time.Until(t.began.Add(time.Duration(f.At)))) {
			return nil
		}
		if err := t.apply(ctx, f.What); err != nil {
			return fmt.Errorf("%s at %s: %w", f.What, time.Duration(f.At), err)
		}
	}
	return nil
}

func (t *trial) apply(ctx context.Context, what scenario.What) error {
	t.mu.Lock() // nobody looks at the gateway meanwhile
	defer t.mu.Unlock()
	switch what {
	case scenario.DatabaseStops:
		t.database.Halt()
	case scenario.DatabaseReturns:
		t.database.Return()
	case scenario.GatewayKilled:
		if t.process.running() {
			t.record.Open(time.Now().UnixNano(), true)
			t.process.kill()
		}
	case scenario.GatewayStops:
		if t.process.running() {
			t.record.Open(time.Now().UnixNano(), false)
			return t.process.stop()
		}
	case scenario.GatewayStarts:
		if !t.process.running() {
			return t.startGateway()
		}
	case scenario.BrokerStops:
		if t.broker.server != nil {
			t.record.Open(time.Now().UnixNano(), false)
			t.broker.stop()
		}
	case scenario.BrokerStarts:
		if t.broker.server == nil {
			return t.startBroker()
		}
	}
	return nil
}

// A gateway or a broker that is being started is waited for, also past the end of the load.
func (t *trial) startGateway() error {
	if err := t.process.start(context.Background()); err != nil {
		return err
	}
	t.record.Close(time.Now().UnixNano())
	return nil
}

func (t *trial) startBroker() error {
	if err := t.broker.start(); err != nil {
		return err
	}
	if t.process.running() {
		if err := t.process.awaitReady(context.Background()); err != nil {
			return err
		}
	}
	t.record.Close(time.Now().UnixNano())
	return nil
}

// mend has all run again, for the backlog to drain.
func (t *trial) mend(ctx context.Context) error {
	t.database.Return()
	if t.broker != nil {
		if err := t.apply(ctx, scenario.BrokerStarts); err != nil {
			return err
		}
	}
	return t.apply(ctx, scenario.GatewayStarts)
}
