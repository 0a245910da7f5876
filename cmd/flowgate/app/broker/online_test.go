package broker

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// findings are the results of a check by their names.
type findings map[string]Finding

func checked(t *testing.T, b *Broker, top Topology) findings {
	t.Helper()
	all := findings{}
	for _, f := range b.CheckOnline(t.Context(), top) {
		if _, twice := all[f.Name]; twice {
			t.Errorf("two findings are called %s", f.Name)
		}
		all[f.Name] = f
	}
	return all
}

// failed are the names of what is wrong, and of what was not looked at.
func (all findings) failed() string {
	var names []string
	for _, f := range all {
		switch {
		case !f.OK():
			names = append(names, fmt.Sprintf("%s: %v", f.Name, f.Err))
		case f.Skipped:
			names = append(names, fmt.Sprintf("%s: skipped: %s", f.Name, f.Detail))
		}
	}
	return strings.Join(names, "\n")
}

// wantFinding checks that this is wrong, in these words, and that it says what to do.
func (all findings) wantFinding(t *testing.T, name string, words ...string) {
	t.Helper()
	f, ok := all[name]
	if !ok {
		t.Fatalf("nothing is called %s in: %v", name, all)
	}
	wantError(t, f.Err, words...)
	if f.Fix == "" {
		t.Errorf("%s does not say what to do", name)
	}
}

func TestCheckOnlineFindsNothingWrong(t *testing.T) {
	embedded := start(t, testConfig(t.TempDir()))
	elsewhere := toExternal(t, external(t, ""), nil)
	for name, b := range map[string]*Broker{"embedded": embedded, "external": elsewhere} {
		_, js := gateway(t, b)
		for _, there := range []bool{false, true} {
			if there {
				ensured(t, js, limitsToo())
			}
			before := configs(t, js)
			all := checked(t, b, limitsToo())
			if failed := all.failed(); failed != "" {
				t.Errorf("%s, streams are there: %v:\n%s", name, there, failed)
			}
			for _, want := range []string{
				"connect", "server version", "payload limit", "rights to publish", "rights to subscribe to", "JetStream",
				"account storage", "account streams", "account consumers", "account stream size", "streams", "ingress subjects", "trial",
			} {
				if all[want].Detail == "" {
					t.Errorf("%s: %q is not there, or says nothing", name, want)
				}
			}
			if _, disk := all["disk"]; disk != (b == embedded) {
				t.Errorf("%s: the disk is looked at: %v", name, disk)
			}
			if diff := cmp.Diff(before, configs(t, js)); diff != "" {
				t.Errorf("%s: the check left something or changed it:\n%s", name, diff)
			}
		}
	}
}

func TestCheckOnlineWithoutAServer(t *testing.T) {
	cfg := testConfig(t.TempDir())
	cfg.URL = "nats://127.0.0.1:1"
	all := checked(t, start(t, cfg), testTopology())
	if len(all) != 1 {
		t.Errorf("it found %v", all)
	}
	wantError(t, all["connect"].Err, "127.0.0.1:1")

	cfg.URL, _ = oldServer(t, "2.10.29")
	all = checked(t, start(t, cfg), testTopology())
	if len(all) != 1 {
		t.Errorf("it found %v", all)
	}
	wantError(t, all["connect"].Err, "2.10.29", "2.14")
}

func TestCheckOnlineFindsStreams(t *testing.T) {
	b := start(t, testConfig(t.TempDir()))
	_, js := gateway(t, b)
	for _, c := range []jetstream.StreamConfig{
		{Name: "AUDIT", Subjects: []string{"ingress.acme.>"}},
		{Name: "COPY", Subjects: []string{"orders.>", "ingress.globex.orders"}},
		{Name: "FLOWGATE_DLQ", Subjects: []string{"letters.>"}},
	} {
		if _, err := js.CreateStream(t.Context(), c); err != nil {
			t.Fatal(err)
		}
	}
	before := configs(t, js)
	all := checked(t, b, testTopology())
	all.wantFinding(t, "ingress subjects", "AUDIT", "[ingress.acme.>]", "COPY", "[orders.> ingress.globex.orders]")
	if strings.Contains(all["ingress subjects"].Err.Error(), "FLOWGATE_DLQ") {
		t.Errorf("a stream of the gateway's captures nothing: %v", all["ingress subjects"].Err)
	}
	all.wantFinding(t, "streams", "FLOWGATE_DLQ", "subjects: want [flowgate.dlq.>], have [letters.>]")
	if diff := cmp.Diff(before, configs(t, js)); diff != "" {
		t.Errorf("the check left something or changed it:\n%s", diff)
	}
}

func TestCheckOnlineFindsThePayloadLimit(t *testing.T) {
	for limit, wrong := range map[string]bool{"64KB": false, "4000": true} {
		b := toExternal(t, external(t, "max_payload: "+limit), nil)
		f := checked(t, b, testTopology())["payload limit"]
		if f.OK() == wrong || f.Fix == "" {
			t.Errorf("max_payload %s: %+v", limit, f)
		}
		if !wrong && !strings.Contains(f.Detail, "producers may send 61440 bytes") {
			t.Errorf("max_payload %s: %s", limit, f.Detail)
		}
		if wrong {
			wantError(t, f.Err, "4000", "4096")
		}
	}
}

// A check beside a gateway at work: its messages are answered and stored once, what
// it has in hand stays there, nobody hears anything of the check.
func TestCheckOnlineDisturbsNobody(t *testing.T) {
	s := external(t, "")
	b := toExternal(t, s, nil)
	nc, js := gateway(t, b)
	a := ensured(t, js, limitsToo())
	lease, err := Acquire(t.Context(), a.State, "gateway", false, nil)
	if err != nil {
		t.Fatal(err)
	}
	_, lost := running(t, lease)
	forward(t, nc)

	// Of three messages one is in hand, one acknowledged and one waits.
	publish(t, js, 3)
	batch, err := a.Consumer.FetchNoWait(2)
	if err != nil {
		t.Fatal(err)
	}
	inHand := <-batch.Messages()
	if err := (<-batch.Messages()).DoubleAck(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := a.State.PutString(t.Context(), "departure", "7"); err != nil {
		t.Fatal(err)
	}
	if _, err := js.Publish(t.Context(), "flowgate.dlq.acme.orders", []byte("dead")); err != nil {
		t.Fatal(err)
	}

	listener := client(t, s.ClientURL())
	heard := make(chan *nats.Msg, 100)
	for _, subject := range []string{"flowgate.pressure", "flowgate.dlq.>", "flowgate.backlog.check.>", "$KV.FLOWGATE_STATE.check", "$JS.EVENT.ADVISORY.*.DELETED.FLOWGATE.>"} {
		if _, err := listener.ChanSubscribe(subject, heard); err != nil {
			t.Fatal(err)
		}
	}
	if err := listener.Flush(); err != nil {
		t.Fatal(err)
	}

	// A producer that never stops.
	pjs, err := jetstream.New(client(t, s.ClientURL()))
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	var sent atomic.Uint64
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			ack, err := pjs.Publish(context.WithoutCancel(ctx), "ingress.acme.orders", []byte("x"))
			if err != nil || ack.Sequence != sent.Add(1)+3 {
				t.Errorf("a producer got %+v, %v for message %d", ack, err, sent.Load())
				return
			}
		}
	}()
	soon(t, "the producer is at work", func() bool { return sent.Load() > 10 })
	for range 3 {
		if failed := checked(t, toExternal(t, s, nil), limitsToo()).failed(); failed != "" {
			t.Error(failed)
		}
	}
	stop()
	<-done

	// The server counts what is pending a little after it has acknowledged it.
	var info *jetstream.ConsumerInfo
	soon(t, "all that was sent is pending", func() bool {
		if info, err = a.Consumer.Info(t.Context()); err != nil {
			t.Fatal(err)
		}
		return info.NumPending == 1+sent.Load()
	})
	if info.NumAckPending != 1 || info.NumRedelivered != 0 || info.Delivered.Stream != 2 {
		t.Errorf("the consumer, of 1 message in hand and %d more: %+v", 1+sent.Load(), info)
	}
	if err := inHand.DoubleAck(t.Context()); err != nil {
		t.Errorf("what was in hand is not any more: %v", err)
	}
	if stream, err := a.Backlog.Info(t.Context()); err != nil || stream.State.LastSeq != 3+sent.Load() {
		t.Errorf("the backlog, after %d messages: %+v, %v", 3+sent.Load(), stream, err)
	}
	if dead, err := a.DLQ.Info(t.Context()); err != nil || dead.State.Msgs != 1 {
		t.Errorf("the dead letters: %+v, %v", dead, err)
	}
	if err := listener.Flush(); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-lost:
		t.Errorf("the lease: %v", err)
	case m := <-heard:
		t.Errorf("a listener heard %s: %s", m.Subject, m.Data)
	default:
	}
	if !lease.Valid() {
		t.Error("the lease is not valid")
	}
}
