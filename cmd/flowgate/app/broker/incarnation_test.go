package broker

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

func TestIncarnation(t *testing.T) {
	_, js := gateway(t, start(t, testConfig(t.TempDir())))
	top := testTopology()
	first := ensured(t, js, top)
	if first.Incarnation == "" {
		t.Fatal("there is none")
	}
	top.MaxMsgs, top.DedupWindow = 10, time.Second
	if a := ensured(t, js, top); a.Incarnation != first.Incarnation || !a.Created.Equal(first.Created) {
		t.Errorf("after an update %s, before %s", a.Incarnation, first.Incarnation)
	}
	seen := map[string]bool{first.Incarnation: true}
	for range 5 {
		if err := js.DeleteStream(t.Context(), "FLOWGATE"); err != nil {
			t.Fatal(err)
		}
		a := ensured(t, js, top)
		if seen[a.Incarnation] {
			t.Errorf("another stream has %s again", a.Incarnation)
		}
		seen[a.Incarnation] = true
	}
}

// A stream that was made by hand gets one on the first start, and keeps it.
func TestIncarnationOfAForeignStream(t *testing.T) {
	_, js := gateway(t, start(t, testConfig(t.TempDir())))
	c := testTopology().backlog()
	c.Metadata = map[string]string{"owner": "ops"}
	if _, err := js.CreateStream(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	publish(t, js, 2)
	a := ensured(t, js, testTopology())
	if a.Incarnation == "" || a.Messages != 2 {
		t.Errorf("assets: %+v", a)
	}
	if owner := a.Backlog.CachedInfo().Config.Metadata["owner"]; owner != "ops" {
		t.Errorf("the other metadata is now %q", owner)
	}
	if again := ensured(t, js, testTopology()); again.Incarnation != a.Incarnation {
		t.Errorf("first %s, then %s", a.Incarnation, again.Incarnation)
	}
}

// Gateways that start at the same moment agree on one stream and one incarnation.
func TestEnsureAtTheSameTime(t *testing.T) {
	b := start(t, testConfig(t.TempDir()))
	const gateways = 6
	var handles []jetstream.JetStream
	for range gateways {
		_, js := gateway(t, b)
		handles = append(handles, js)
	}
	for round := range 6 {
		assets, errs := make([]Assets, gateways), make([]error, gateways)
		var wg sync.WaitGroup
		for i, js := range handles {
			wg.Go(func() {
				top := limitsToo()
				if round%2 == 1 { // started with other settings
					top.MaxMsgs = int64(10 + i)
				}
				assets[i], errs[i] = Ensure(t.Context(), js, top)
			})
		}
		wg.Wait()
		if err := errors.Join(errs...); err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		for _, a := range assets {
			if a.Incarnation != assets[0].Incarnation {
				t.Fatalf("round %d: incarnations %s and %s", round, a.Incarnation, assets[0].Incarnation)
			}
		}
		all := configs(t, handles[0])
		if len(all) != 5 {
			t.Fatalf("round %d: %v", round, all)
		}
		if round%3 == 0 { // leave some of it to the next round
			continue
		}
		for name := range all {
			if s, err := handles[0].Stream(t.Context(), name); err == nil && s.CachedInfo().Config.Name != "FLOWGATE_DLQ" {
				if err := handles[0].DeleteStream(t.Context(), name); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
}
