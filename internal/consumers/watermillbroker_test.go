package consumers

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
)

// leavesNothing sees that no goroutine of a client is left at the test's end. It comes
// before what opens them.
func leavesNothing(t *testing.T) {
	t.Helper()
	t.Cleanup(func() { soon(t, "the clients' goroutines have ended", func() bool { return clients() == "" }) })
}

// openBroker opens a broker's destination until the test's end.
func openBroker(t *testing.T, url string, change func(*Config)) *broker {
	t.Helper()
	cfg := testConfig()
	cfg.URL = url
	if change != nil {
		change(&cfg)
	}
	d, err := Open(t.Context(), cfg, Deps{Registerer: prometheus.NewRegistry(), Logger: quiet()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return d.(*broker)
}

// clients are the stacks of the clients' goroutines.
func clients() string {
	all := make([]byte, 1<<20)
	all = all[:runtime.Stack(all, true)]
	var of []string
	for stack := range strings.SplitSeq(string(all), "\n\n") {
		for _, name := range []string{"IBM/sarama", "rabbitmq/amqp091-go", "redis/go-redis", "rcrowley/go-metrics", "consumers.(*broker)"} {
			if strings.Contains(stack, name) {
				of = append(of, stack)
				break
			}
		}
	}
	return strings.Join(of, "\n\n")
}

// soon waits until something holds.
func soon(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); !holds(); {
		if time.Now().After(end) {
			t.Errorf("not within 30 s: %s\n%s", what, clients())
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// of makes deliveries of tenants, numbered from 1.
func of(tenants ...string) []Delivery {
	ds := deliveries(len(tenants))
	for i, tenant := range tenants {
		ds[i].Tenant, ds[i].ID = tenant, fmt.Sprintf("%s/%d", tenant, i+1)
	}
	return ds
}

// fake is a broker on a publisher that is a function.
func fake(t *testing.T, name string, lanes int, order Order, publish publish) *broker {
	t.Helper()
	topic, err := parseTemplate("topic", name, func(name string) error {
		if strings.Contains(name, "!") {
			return errors.New("has a !")
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return &broker{name: "fake", pub: publish, topic: topic, order: order, lanes: make(chan struct{}, lanes), judge: func(err error) error { return err }}
}

func TestBrokerOrder(t *testing.T) {
	batch := of("a", "b", "a", "c!", "a", "b", "c!", "d", "d")
	for name, test := range map[string]struct {
		order Order
		want  []VerdictKind
		calls map[string]string // by tenant: what was published, in order
	}{
		"none": {OrderNone,
			[]VerdictKind{Done, Retry, Retry, Reject, Done, Done, Reject, Overload, Overload},
			map[string]string{"a": "1 3 5", "b": "2 6", "d": "8"}},
		"tenant": {OrderTenant,
			[]VerdictKind{Done, Retry, Retry, Reject, Hold, Hold, Reject, Overload, Overload},
			map[string]string{"a": "1 3", "b": "2", "d": "8"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var mu sync.Mutex
				calls := map[string]string{}
				b := fake(t, "to.{tenant}", 4, test.order, func(topic string, m *message.Message) error {
					tenant, n := m.Metadata.Get(tenantHeader), m.Metadata.Get(seqHeader)
					if topic != "to."+tenant {
						t.Errorf("%s went to %s", m.UUID, topic)
					}
					time.Sleep(time.Second) // tenants beside each other
					mu.Lock()
					defer mu.Unlock()
					calls[tenant] = strings.TrimSpace(calls[tenant] + " " + n)
					switch n {
					case "2", "3":
						return errors.New("not now")
					case "8":
						return Overloaded(0, errors.New("down"))
					}
					return nil
				})
				began := time.Now()
				wantKinds(t, b.Deliver(t.Context(), batch), test.want...)
				if took := time.Since(began); took != time.Duration(len(strings.Fields(test.calls["a"])))*time.Second {
					t.Errorf("it took %s, want as long as the tenant with most", took)
				}
				if diff := cmp.Diff(test.calls, calls); diff != "" {
					t.Errorf("published (-want +got):\n%s", diff)
				}
				if err := b.Close(); err == nil || err.Error() != "closing failed" {
					t.Errorf("close: %v", err)
				}
			})
		})
	}
}

// TestBrokerHangs: a broker that hangs for an hour holds no delivery over its time, and
// no more calls than there are lanes.
func TestBrokerHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		began, calls := time.Now(), 0
		b := fake(t, "to", 3, OrderNone, func(string, *message.Message) error {
			mu.Lock()
			calls++
			mu.Unlock()
			time.Sleep(time.Hour - time.Since(began))
			return nil
		})
		for range 20 {
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			start := time.Now()
			answers := b.Deliver(ctx, of("a", "b", "a", "c", "d"))
			wantKinds(t, answers, Overload, Overload, Overload, Overload, Overload)
			wantError(t, answers[0], "no confirmation in time")
			if took := time.Since(start); took != 10*time.Second {
				t.Errorf("a delivery took %s, want its 10s", took)
			}
			cancel()
		}
		mu.Lock()
		if calls != 3 {
			t.Errorf("%d calls hang, want as many as lanes, 3", calls)
		}
		mu.Unlock()
		time.Sleep(time.Hour - time.Since(began)) // it goes on
		synctest.Wait()
		wantKinds(t, b.Deliver(t.Context(), of("a", "b", "a", "c", "d")), Done, Done, Done, Done, Done)
		mu.Lock()
		defer mu.Unlock()
		if calls != 8 {
			t.Errorf("%d calls, want 3 and 5: what was given back is not published behind its back", calls)
		}
		_ = b.Close()
	})
}

func TestBrokerPanic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := fake(t, "to", 1, OrderNone, func(string, *message.Message) error { panic("oh no") })
		wantError(t, deliver(t, b, aDelivery(1), Retry), "panicked", "oh no")
	})
}
