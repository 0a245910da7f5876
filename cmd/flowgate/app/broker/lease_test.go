package broker

import (
	"context"
	"errors"
	"os"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/flowgate/flowgate/internal/bubble"
)

// leaseBucket is the state bucket of an embedded server; in a bubble.
func leaseBucket(t *testing.T) jetstream.KeyValue {
	t.Helper()
	cfg := testConfig(t.TempDir())
	cfg.SyncEvery = time.Hour // the default wakes up ten times a second
	_, js := gateway(t, start(t, cfg))
	return ensured(t, js, testTopology()).State
}

// acquired takes the lease, and tells how long that took.
func acquired(t *testing.T, kv jetstream.KeyValue, id string) (*Lease, time.Duration) {
	t.Helper()
	began := time.Now()
	l, err := Acquire(t.Context(), kv, id, false, nil)
	if err != nil {
		t.Fatal(err)
	}
	return l, time.Since(began)
}

// running renews l until stop, which waits for the end and returns what Run did.
func running(t *testing.T, l *Lease) (stop func() error, ended <-chan error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- l.Run(ctx) }()
	t.Cleanup(cancel)
	return func() error { cancel(); return <-done }, done
}

// validFor checks each 10 ms that l is valid.
func validFor(t *testing.T, l *Lease, d time.Duration) {
	t.Helper()
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if !l.Valid() {
			t.Fatalf("the lease is not valid, %s before the end of %s", time.Until(end), d)
		}
	}
}

// A second gateway waits as long as the first one is there, and hears for whom.
func TestASecondGatewayStandsBy(t *testing.T) {
	for _, embedded := range []bool{false, true} {
		bubble.Test(t, func(t *testing.T) {
			kv := leaseBucket(t)
			first, took := acquired(t, kv, "first")
			if took != 0 {
				t.Errorf("a free lease took %s", took)
			}
			stop, _ := running(t, first)
			host, err := os.Hostname()
			if err != nil {
				t.Fatal(err)
			}
			var heard []string
			var second *Lease
			taken := make(chan time.Time)
			go func() {
				var err error
				second, err = Acquire(context.WithoutCancel(t.Context()), kv, "second", embedded, func(h LeaseHolder, err error) {
					if err != nil {
						t.Error(err)
					}
					heard = append(heard, h.String())
				})
				if err != nil {
					t.Error(err)
				}
				taken <- time.Now()
			}()
			validFor(t, first, 10*time.Minute)
			if want := "first on host " + host + ", process " + strconv.Itoa(os.Getpid()) + ", since 2000-01-01T00:00:00Z"; len(heard) != 1 || heard[0] != want {
				t.Errorf("it stands by for %q, want once %q", heard, want)
			}
			left := time.Now()
			if err := stop(); err != nil {
				t.Error(err)
			}
			if took := (<-taken).Sub(left); took > 10*time.Millisecond || first.Valid() || !second.Valid() {
				t.Errorf("taken %s after the first left; the first is valid: %v, the second: %v", took, first.Valid(), second.Valid())
			}
		})
	}
}

func TestALeaseGivenBackIsTakenAtOnce(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		kv := leaseBucket(t)
		for round := range 5 {
			l, took := acquired(t, kv, "gateway "+strconv.Itoa(round))
			if took != 0 {
				t.Fatalf("round %d: it took %s", round, took)
			}
			stop, _ := running(t, l)
			time.Sleep(time.Duration(round) * 700 * time.Millisecond)
			if err := stop(); err != nil {
				t.Fatal(err)
			}
			if l.Valid() || !l.Until().IsZero() {
				t.Errorf("round %d: it holds until %s after it was given back", round, l.Until())
			}
		}
		// One that waits for a silent holder sees that too.
		l, _ := acquired(t, kv, "leaves")
		waiting := make(chan time.Time)
		go func() {
			if _, err := Acquire(context.WithoutCancel(t.Context()), kv, "waits", false, nil); err != nil {
				t.Error(err)
			}
			waiting <- time.Now()
		}()
		time.Sleep(600 * time.Millisecond)
		stop, _ := running(t, l)
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		left := time.Now()
		if took := (<-waiting).Sub(left); took > 10*time.Millisecond {
			t.Errorf("one that waited took it %s later", took)
		}
	})
}

// Neither clock is compared with the other's: the lease of a process that died long
// ago is watched as long as another.
func TestAHolderThatStopsRenewing(t *testing.T) {
	for _, ago := range []time.Duration{0, 700 * time.Millisecond, 2400 * time.Millisecond, time.Hour} {
		t.Run(ago.String(), func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				kv := leaseBucket(t)
				first, _ := acquired(t, kv, "first")
				if left := time.Until(first.Until()); left != leaseLife {
					t.Errorf("it holds for %s", left)
				}
				time.Sleep(ago)
				if valid := first.Valid(); valid != (ago < leaseLife) {
					t.Errorf("%s after its last renewal it is valid: %v", ago, valid)
				}
				second, took := acquired(t, kv, "second")
				if took != leaseWait {
					t.Errorf("it was taken after %s", took)
				}
				if first.Valid() || !second.Valid() {
					t.Errorf("after that the first is valid: %v, the second: %v", first.Valid(), second.Valid())
				}
				// The first comes back to life, and finds out.
				_, ended := running(t, first)
				err := <-ended
				if !errors.Is(err, ErrLost) || first.Valid() {
					t.Errorf("the first: %v, valid %v", err, first.Valid())
				}
				wantError(t, err, "second", "process "+strconv.Itoa(os.Getpid()), "took it")
				if !second.Valid() {
					t.Error("and took the lease from the second")
				}
			})
		})
	}
}

// A process that was stopped and that nobody took over from goes on.
func TestAHolderThatSlept(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		l, _ := acquired(t, leaseBucket(t), "slept")
		time.Sleep(time.Minute)
		if l.Valid() {
			t.Error("valid after a minute without a renewal")
		}
		stop, _ := running(t, l)
		synctest.Wait()
		validFor(t, l, time.Minute)
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}

// What ran in a process together with its broker is dead if another process runs
// that broker's store now. A broker that others reach too proves nothing.
func TestLeftoversOfAnEmbeddedBroker(t *testing.T) {
	for _, tc := range []struct {
		was, is bool
		want    time.Duration
	}{
		{true, true, 0},
		{true, false, leaseWait},
		{false, true, leaseWait},
		{false, false, leaseWait},
	} {
		bubble.Test(t, func(t *testing.T) {
			kv := leaseBucket(t)
			if _, err := Acquire(t.Context(), kv, "before the crash", tc.was, nil); err != nil {
				t.Fatal(err)
			}
			began := time.Now()
			if _, err := Acquire(t.Context(), kv, "after it", tc.is, nil); err != nil {
				t.Fatal(err)
			}
			if took := time.Since(began); took != tc.want {
				t.Errorf("embedded %v, then %v: it took %s, want %s", tc.was, tc.is, took, tc.want)
			}
		})
	}
}

func TestTheLeasesKeyIsTouched(t *testing.T) {
	for _, tc := range []struct {
		name  string
		touch func(context.Context, jetstream.KeyValue) error
		want  []string
	}{
		{"deleted", func(ctx context.Context, kv jetstream.KeyValue) error { return kv.Delete(ctx, "lease") }, []string{"deleted"}},
		{"purged", func(ctx context.Context, kv jetstream.KeyValue) error { return kv.Purge(ctx, "lease") }, []string{"deleted"}},
		{"written by another", func(ctx context.Context, kv jetstream.KeyValue) error {
			_, err := kv.PutString(ctx, "lease", `{"v":1,"id":"other","host":"elsewhere","pid":7}`)
			return err
		}, []string{"other on host elsewhere, process 7, took it"}},
		{"garbage", func(ctx context.Context, kv jetstream.KeyValue) error {
			_, err := kv.PutString(ctx, "lease", "\xff{")
			return err
		}, []string{"unknown"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				kv := leaseBucket(t)
				l, _ := acquired(t, kv, "holder")
				_, ended := running(t, l)
				time.Sleep(10*time.Second + time.Millisecond)
				touched := time.Now()
				if err := tc.touch(t.Context(), kv); err != nil {
					t.Fatal(err)
				}
				err := <-ended
				if !errors.Is(err, ErrLost) || l.Valid() {
					t.Errorf("the holder: %v, valid %v", err, l.Valid())
				}
				wantError(t, err, tc.want...)
				if took := time.Since(touched); took > time.Second {
					t.Errorf("the holder saw it after %s", took)
				}
				// What is there now is no obstacle to the next one.
				if _, took := acquired(t, kv, "next"); took > leaseWait {
					t.Errorf("the next one needed %s", took)
				}
			})
		})
	}
}

// Whoever stops a start does not wait for the lease.
func TestAcquireEndsWithItsContext(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		kv := leaseBucket(t)
		acquired(t, kv, "silent")
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second+time.Millisecond, func() { cancel(errors.New("terminated")) })
		began := time.Now()
		_, err := Acquire(ctx, kv, "stopped", false, nil)
		wantError(t, err, "terminated", "FLOWGATE_STATE")
		if took := time.Since(began); took != time.Second+time.Millisecond {
			t.Errorf("it returned after %s", took)
		}
	})
}
