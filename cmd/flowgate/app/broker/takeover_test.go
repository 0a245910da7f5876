package broker

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/flowgate/flowgate/internal/bubble"
)

// network is the way to a bucket: slow, and lossy in both directions.
type network struct {
	jetstream.KeyValue
	// fate says how long the request and its answer take; lost or not.
	fate func() (request, answer time.Duration, requestLost, answerLost bool)
	late *sync.WaitGroup // what is still on its way
}

type answer struct {
	entry    jetstream.KeyValueEntry
	revision uint64
	err      error
}

// pass sends a request, which reaches the bucket even if nobody waits for it any
// more.
func (n network) pass(ctx context.Context, do func(context.Context) answer) answer {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second) // the client library's own
	defer cancel()
	request, back, requestLost, answerLost := n.fate()
	got := make(chan answer, 1)
	n.late.Go(func() {
		time.Sleep(request)
		if requestLost {
			return
		}
		a := do(context.WithoutCancel(ctx))
		time.Sleep(back)
		if !answerLost {
			got <- a
		}
	})
	select {
	case a := <-got:
		return a
	case <-ctx.Done():
		return answer{err: ctx.Err()}
	}
}

func (n network) Get(ctx context.Context, key string) (jetstream.KeyValueEntry, error) {
	a := n.pass(ctx, func(ctx context.Context) (a answer) { a.entry, a.err = n.KeyValue.Get(ctx, key); return a })
	return a.entry, a.err
}

func (n network) Create(ctx context.Context, key string, value []byte, _ ...jetstream.KVCreateOpt) (uint64, error) {
	a := n.pass(ctx, func(ctx context.Context) (a answer) {
		a.revision, a.err = n.KeyValue.Create(ctx, key, value)
		return a
	})
	return a.revision, a.err
}

func (n network) Update(ctx context.Context, key string, value []byte, last uint64) (uint64, error) {
	a := n.pass(ctx, func(ctx context.Context) (a answer) {
		a.revision, a.err = n.KeyValue.Update(ctx, key, value, last)
		return a
	})
	return a.revision, a.err
}

func (n network) Delete(ctx context.Context, key string, opts ...jetstream.KVDeleteOpt) error {
	return n.pass(ctx, func(ctx context.Context) answer { return answer{err: n.KeyValue.Delete(ctx, key, opts...)} }).err
}

// over puts a network between kv and its user.
func over(t *testing.T, kv jetstream.KeyValue, fate func() (request, answer time.Duration, requestLost, answerLost bool)) network {
	n := network{kv, fate, new(sync.WaitGroup)}
	t.Cleanup(n.late.Wait)
	return n
}

// Two gateways that both deliver would break the promised rate. Whatever the network
// does, at no moment do two processes hold the lease.
func TestNeverTwoHolders(t *testing.T) {
	for seed := range uint64(6) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) { contend(t, leaseBucket(t), seed) })
		})
	}
}

// contend has four processes take the lease, hold it, hang, die, come back and leave
// for five minutes.
func contend(t *testing.T, kv jetstream.KeyValue, seed uint64) {
	const processes, length = 4, 5 * time.Minute
	var mu sync.Mutex
	leases := map[*Lease]string{} // of all that ever held it
	terms := 0

	ctx, cancel := context.WithTimeout(t.Context(), length)
	defer cancel()
	var wg sync.WaitGroup
	for p := range processes {
		random := rand.New(rand.NewPCG(seed, uint64(p)))
		var own sync.Mutex // random's: requests on their way are not the process's goroutine
		upTo := func(d time.Duration) time.Duration {
			own.Lock()
			defer own.Unlock()
			return time.Duration(random.Int64N(int64(d)))
		}
		chance := func(percent int) bool { return upTo(100) < time.Duration(percent) }
		way := over(t, kv, func() (request, answer time.Duration, requestLost, answerLost bool) {
			request, answer = upTo(20*time.Millisecond), upTo(20*time.Millisecond)
			if chance(15) {
				request += upTo(3 * time.Second)
			}
			if chance(15) {
				answer += upTo(3 * time.Second)
			}
			return request, answer, chance(8), chance(8)
		})
		wg.Go(func() {
			for life := 0; ctx.Err() == nil; life++ {
				id := fmt.Sprintf("process %d.%d", p, life)
				l, err := Acquire(ctx, way, id, false, nil)
				if err != nil {
					time.Sleep(upTo(2 * time.Second))
					continue
				}
				mu.Lock()
				leases[l] = id
				terms++
				mu.Unlock()
				if chance(40) { // it hangs, or dies
					time.Sleep(upTo(8 * time.Second))
				}
				if chance(80) {
					term, end := context.WithTimeout(ctx, upTo(20*time.Second))
					_ = l.Run(term) // lost or given back
					end()
				}
			}
		})
	}

	held := 0
	looks := 0
	for ; ctx.Err() == nil; time.Sleep(5 * time.Millisecond) {
		var valid []string
		mu.Lock()
		for l, id := range leases {
			if l.Valid() {
				valid = append(valid, id)
			} else if time.Since(l.Until()) > time.Minute {
				delete(leases, l)
			}
		}
		mu.Unlock()
		looks++
		if len(valid) > 0 {
			held++
		}
		if len(valid) > 1 {
			t.Errorf("at %s %v hold it", time.Now().Format("04:05.000"), valid)
			break
		}
	}
	cancel()
	wg.Wait()
	// That must not come from nobody ever holding it.
	if !t.Failed() && (terms < 15 || held < looks/5) {
		t.Errorf("%d terms; held at %d of %d looks", terms, held, looks)
	}
}

// A renewal that is stored and whose answer never comes must not end the lease: the
// holder finds its own value, and goes on.
func TestALostAnswer(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		var calls atomic.Int64
		way := over(t, leaseBucket(t), func() (request, answer time.Duration, requestLost, answerLost bool) {
			return 0, 0, false, calls.Add(1)%7 == 6
		})
		l, err := Acquire(t.Context(), way, "holder", false, nil)
		if err != nil {
			t.Fatal(err)
		}
		stop, _ := running(t, l)
		validFor(t, l, 4*time.Minute)
		if err := stop(); err != nil {
			t.Error(err)
		}
		if n := calls.Load(); n < 200 {
			t.Errorf("only %d calls", n)
		}
	})
}

// The lease counts from when a renewal was sent: how old it was when it was stored,
// nobody knows.
func TestASlowAnswerDoesNotLengthenTheLease(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		var slow atomic.Int64
		way := over(t, leaseBucket(t), func() (request, answer time.Duration, requestLost, answerLost bool) {
			return 0, time.Duration(slow.Load()), false, false
		})
		slow.Store(int64(300 * time.Millisecond)) // of the look, and of the answer
		l, err := Acquire(t.Context(), way, "slow", false, nil)
		if err != nil {
			t.Fatal(err)
		}
		if left := time.Until(l.Until()); left != leaseLife-300*time.Millisecond {
			t.Errorf("taken 300 ms ago, it holds for %s", left)
		}
		slow.Store(int64(400 * time.Millisecond))
		if err := l.renew(t.Context()); err != nil {
			t.Fatal(err)
		}
		if left := time.Until(l.Until()); left != leaseLife-400*time.Millisecond {
			t.Errorf("renewed 400 ms ago, it holds for %s", left)
		}
	})
}

// cutOff is a lease whose holder can be cut off from the bucket.
func cutOff(t *testing.T, kv jetstream.KeyValue) (*Lease, *atomic.Bool) {
	t.Helper()
	var cut atomic.Bool
	way := over(t, kv, func() (request, answer time.Duration, requestLost, answerLost bool) {
		return 0, 0, cut.Load(), false
	})
	l, err := Acquire(t.Context(), way, "cut off", false, nil)
	if err != nil {
		t.Fatal(err)
	}
	return l, &cut
}

// A holder that cannot reach the bucket keeps what it has, and not more; it ends
// when it hears that another took over.
func TestAHolderThatIsCutOff(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		kv := leaseBucket(t)
		first, cut := cutOff(t, kv)
		_, ended := running(t, first)
		time.Sleep(10*time.Second + time.Millisecond) // a millisecond after a renewal
		cut.Store(true)
		time.Sleep(leaseLife - 2*time.Millisecond)
		if !first.Valid() {
			t.Error("the first is not valid although its life is not over")
		}
		time.Sleep(time.Millisecond)
		if first.Valid() {
			t.Error("the first is valid after its life")
		}
		second, took := acquired(t, kv, "second")
		if took != leaseWait || !second.Valid() || first.Valid() {
			t.Errorf("taken after %s; the second is valid: %v, the first: %v", took, second.Valid(), first.Valid())
		}
		cut.Store(false)
		select {
		case err := <-ended:
			if !errors.Is(err, ErrLost) {
				t.Errorf("the first: %v", err)
			}
			wantError(t, err, "second")
		case <-time.After(3 * time.Second):
			t.Error("the first goes on")
		}
	})
}

// A lease that ran out and that nobody took is taken up again.
func TestALeaseIsTakenUpAgain(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		kv := leaseBucket(t)
		l, cut := cutOff(t, kv)
		stop, _ := running(t, l)
		for range 3 {
			cut.Store(true)
			time.Sleep(time.Minute)
			if l.Valid() {
				t.Fatal("valid after a minute without the bucket")
			}
			cut.Store(false)
			time.Sleep(3 * time.Second)
			if !l.Valid() {
				t.Fatal("not valid 3 s after the bucket is there again")
			}
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}

// With the broker in its own process a gateway needs no renewals: an idle one writes
// nothing.
func TestAnEmbeddedLeaseIsNotRenewed(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		kv := leaseBucket(t)
		l, err := Acquire(t.Context(), kv, "embedded", true, nil)
		if err != nil {
			t.Fatal(err)
		}
		stop, _ := running(t, l)
		before, err := kv.Get(t.Context(), leaseKey)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		after, err := kv.Get(t.Context(), leaseKey)
		if err != nil {
			t.Fatal(err)
		}
		if !l.Valid() || before.Revision() != after.Revision() {
			t.Errorf("after an hour: valid %v, revision %d, before %d", l.Valid(), after.Revision(), before.Revision())
		}
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		if e, err := kv.Get(t.Context(), leaseKey); err != nil || !readHolder(e.Value()).Released || l.Valid() {
			t.Errorf("after the end: %v, valid %v", err, l.Valid())
		}
	})
}
