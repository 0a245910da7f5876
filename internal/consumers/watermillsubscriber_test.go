package consumers

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
)

var _ message.Subscriber = (*Subscriber)(nil)

// route runs a Watermill router with a handler on s until the test's end, or until
// the function given back is called.
func route(t *testing.T, s *Subscriber, handler message.NoPublishHandlerFunc) (stop func()) {
	t.Helper()
	router, err := message.NewRouter(message.RouterConfig{CloseTimeout: time.Second}, watermill.NopLogger{})
	if err != nil {
		t.Fatal(err)
	}
	router.AddConsumerHandler("handler", "orders.new", s, handler)
	ended := make(chan error, 1)
	go func() { ended <- router.Run(context.Background()) }()
	<-router.Running()
	stop = sync.OnceFunc(func() {
		if err := router.Close(); err != nil {
			t.Errorf("close the router: %v", err)
		}
		if err := <-ended; err != nil {
			t.Errorf("router: %v", err)
		}
	})
	t.Cleanup(stop)
	return stop
}

// within makes a delivery that has 10 s.
func within(t *testing.T, s *Subscriber, d Delivery) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	return s.Deliver(ctx, []Delivery{d})[0]
}

func TestSubscriberOnTheRouter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewSubscriber()
		var mu sync.Mutex
		var seen []*message.Message
		var ended []context.Context
		route(t, s, func(m *message.Message) error {
			mu.Lock()
			seen, ended = append(seen, m), append(ended, m.Context())
			mu.Unlock()
			switch m.Metadata.Get("Flowgate-Seq") {
			case "2":
				return errors.New("not this one")
			case "3":
				panic("oh no")
			case "4":
				<-m.Context().Done() // a handler may know its deadline
				return m.Context().Err()
			}
			return nil
		})
		wantKinds(t, []error{within(t, s, aDelivery(1))}, Done)
		wantError(t, within(t, s, aDelivery(2)), "refused")
		wantKinds(t, []error{within(t, s, aDelivery(2)), within(t, s, aDelivery(3))}, Retry, Retry)
		began := time.Now()
		late := within(t, s, aDelivery(4))
		wantKinds(t, []error{late}, Retry)
		wantError(t, late, "deadline")
		if took := time.Since(began); took != 10*time.Second {
			t.Errorf("a handler that hangs was given %s, want 10s", took)
		}
		wantKinds(t, s.Deliver(t.Context(), []Delivery{aDelivery(1), aDelivery(2), aDelivery(5)}), Done, Retry, Done)
		synctest.Wait()
		mu.Lock()
		defer mu.Unlock()
		if m := seen[0]; m.UUID != "acme/1" || string(m.Payload) != "payload 1" || m.Metadata.Get("Flowgate-Topic") != "orders.new" {
			t.Errorf("the handler saw %s %v %q", m.UUID, m.Metadata, m.Payload)
		}
		for i, ctx := range ended {
			if ctx.Err() == nil {
				t.Errorf("the context of message %d outlives its attempt", i)
			}
		}
		if len(seen) != 8 {
			t.Errorf("the handler ran %d times, want 8: once an attempt", len(seen))
		}
	})
}

func TestSubscriberConcurrency(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewSubscriber()
		route(t, s, func(*message.Message) error {
			time.Sleep(5 * time.Second)
			return nil
		})
		began := time.Now()
		var wg sync.WaitGroup
		for n := range 50 {
			wg.Go(func() {
				if err := within(t, s, aDelivery(n)); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if took := time.Since(began); took != 5*time.Second {
			t.Errorf("50 at once took %s, want 5s", took)
		}
	})
}

// TestSubscriberNobodyThere: what no handler has had is not charged to the message.
func TestSubscriberNobodyThere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewSubscriber()
		began := time.Now()
		wantError(t, deliverFor(t, s, 10*time.Second, Overload), "no handler")
		if took := time.Since(began); took != 10*time.Second {
			t.Errorf("it waited %s for a handler, want 10s", took)
		}

		// A subscription that is busy, or never reads.
		ctx, unsubscribe := context.WithCancel(t.Context())
		ch, err := s.Subscribe(ctx, "orders.new")
		if err != nil {
			t.Fatal(err)
		}
		wantError(t, deliverFor(t, s, time.Second, Overload), "no handler")
		synctest.Wait()
		select {
		case m := <-ch:
			t.Errorf("%s was handed out after its attempt had ended", m.UUID)
		default:
		}

		// One that goes away with the message in its hand.
		time.AfterFunc(time.Second, unsubscribe)
		wantError(t, deliverFor(t, s, 10*time.Second, Overload), "subscription ended")
		if _, open := <-ch; open {
			t.Error("the channel of an ended subscription gave a message")
		}

		stop := route(t, s, func(*message.Message) error { return nil })
		deliverFor(t, s, 10*time.Second, Done)
		stop() // and closes s, as routers do
		wantError(t, deliverFor(t, s, 10*time.Second, Overload), "closed")
	})
}

func deliverFor(t *testing.T, s *Subscriber, d time.Duration, want VerdictKind) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	answers := s.Deliver(ctx, deliveries(1))
	wantKinds(t, answers, want)
	return answers[0]
}

// TestSubscriberContract holds what Watermill's own suite asks of a subscriber and
// what has a meaning here: redelivery, topics and groups are the shaper's.
func TestSubscriberContract(t *testing.T) {
	t.Run("each message goes to one subscription", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := NewSubscriber()
			var mu sync.Mutex
			seen := map[string]int{}
			by := map[int]int{}
			for n := range 3 {
				ch, err := s.Subscribe(t.Context(), []string{"", "orders.new", "orders.new"}[n])
				if err != nil {
					t.Fatal(err)
				}
				go func() {
					for m := range ch {
						mu.Lock()
						seen[m.UUID]++
						by[n]++
						mu.Unlock()
						time.Sleep(time.Millisecond)
						m.Ack()
					}
				}()
			}
			var wg sync.WaitGroup
			for n := range 4 {
				wg.Go(func() {
					for i := range 25 {
						if err := within(t, s, aDelivery(25*n+i)); err != nil {
							t.Error(err)
						}
					}
				})
			}
			wg.Wait()
			for id, n := range seen {
				if n != 1 {
					t.Errorf("%s was handed out %d times", id, n)
				}
			}
			if len(seen) != 100 || len(by) != 3 {
				t.Errorf("%d messages at %d subscriptions, want 100 at 3", len(seen), len(by))
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
	})
	t.Run("in order", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := NewSubscriber()
			ch, err := s.Subscribe(t.Context(), "")
			if err != nil {
				t.Fatal(err)
			}
			go func() { s.Deliver(t.Context(), deliveries(50)) }()
			for n := 1; n <= 50; n++ {
				m := <-ch
				if want := fmt.Sprint("acme/", n); m.UUID != want {
					t.Errorf("%s, want %s", m.UUID, want)
				}
				m.Ack()
			}
			_ = s.Close()
		})
	})
	t.Run("close", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := NewSubscriber()
			var open atomic.Int32
			for range 5 {
				ch, _ := s.Subscribe(t.Context(), "")
				open.Add(1)
				go func() {
					for range ch { // read, and never answered
					}
					open.Add(-1)
				}()
			}
			hung := make(chan []error, 1)
			go func() {
				ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
				defer cancel()
				hung <- s.Deliver(ctx, deliveries(1))
			}()
			synctest.Wait()
			var wg sync.WaitGroup
			for range 5 { // at once, and again
				wg.Go(func() { _ = s.Close() })
			}
			wg.Wait()
			synctest.Wait()
			if n := open.Load(); n != 0 {
				t.Errorf("%d subscriptions are open after Close", n)
			}
			if _, err := s.Subscribe(t.Context(), ""); err == nil {
				t.Error("subscribed to what is closed")
			}
			// A handler had it: what it did with it is not known.
			wantKinds(t, <-hung, Retry)
		})
	})
	t.Run("a subscription ends with its context, others go on", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := NewSubscriber()
			ctx, cancel := context.WithCancel(t.Context())
			first, err := s.Subscribe(ctx, "")
			if err != nil {
				t.Fatal(err)
			}
			second, err := s.Subscribe(t.Context(), "")
			if err != nil {
				t.Fatal(err)
			}
			cancel()
			synctest.Wait()
			if _, open := <-first; open {
				t.Error("a message on an ended subscription")
			}
			go func() { (<-second).Ack() }()
			deliverFor(t, s, time.Second, Done)
			_ = s.Close()
			select { // when Close returns, all have ended
			case <-second:
			default:
				t.Error("a subscription is open after Close")
			}
		})
	})
}
