package consumers

import (
	"context"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nats.go/micro"
)

// natsServer is a NATS of its own that is reached over TCP.
func natsServer(t *testing.T, change func(*server.Options)) *server.Server {
	t.Helper()
	opts := &server.Options{Host: "127.0.0.1", Port: -1, JetStream: true, StoreDir: t.TempDir(), NoSigs: true, NoLog: true}
	if change != nil {
		change(opts)
	}
	s, err := server.NewServer(opts)
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	if !s.ReadyForConnections(20 * time.Second) {
		t.Fatal("the server is not ready")
	}
	return s
}

// natsConn connects as the gateway does.
func natsConn(t *testing.T, url string) *nats.Conn {
	t.Helper()
	nc, err := nats.Connect(url, nats.MaxReconnects(-1), nats.ReconnectWait(10*time.Millisecond), nats.ReconnectBufSize(-1),
		nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	return nc
}

// toNATS is the destination of a URL over nc.
func toNATS(t *testing.T, nc *nats.Conn, url string, change ...func(*Config)) Destination {
	t.Helper()
	cfg := testConfig()
	cfg.URL = url
	for _, c := range change {
		c(&cfg)
	}
	if err := cfg.Validate(); err != nil {
		t.Fatal(err)
	}
	d, err := Open(t.Context(), cfg, Deps{NATS: nc, Logger: quiet()})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// hear subscribes, over a connection of its own.
func hear(t *testing.T, s *server.Server, subject string) *nats.Subscription {
	t.Helper()
	nc := natsConn(t, s.ClientURL())
	sub, err := nc.SubscribeSync(subject)
	if err != nil {
		t.Fatal(err)
	}
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
	return sub
}

// replies answers what is published there, over a connection of its own.
func replies(t *testing.T, s *server.Server, subject string, answer func(m *nats.Msg)) {
	t.Helper()
	nc := natsConn(t, s.ClientURL())
	if _, err := nc.Subscribe(subject, answer); err != nil {
		t.Fatal(err)
	}
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
}

func TestNATSMessage(t *testing.T) {
	s := natsServer(t, nil)
	sub := hear(t, s, "out.>")
	d := toNATS(t, natsConn(t, s.ClientURL()), "nats:out.orders")
	m := aDelivery(7)
	m.Headers = map[string][]string{
		"Content-Type": {"text/plain"}, "traceparent": {"00-1-2-3"}, "X-Many": {"a", "b"}, "lower": {"x"}, "Flowgate-User": {"u1"},
		"Nats-Msg-Id": {"7"}, "Nats-Expected-Stream": {"S"}, "nats-rollup": {"all"}, "Nats_Other": {"x"},
		"Flowgate-Id": {"forged"}, "flowgate-seq": {"forged"}, "FLOWGATE_TENANT": {"forged"},
	}
	deliver(t, d, m, Done)
	m.Topic, m.Headers, m.Payload = "", nil, nil
	deliver(t, d, m, Done)

	got, err := sub.NextMsg(20 * time.Second)
	if err != nil {
		t.Fatal(err)
	}
	if got.Subject != "out.orders.acme.orders.new" || string(got.Data) != "payload 7" || got.Reply != "" {
		t.Errorf("%s %q, reply %q", got.Subject, got.Data, got.Reply)
	}
	want := nats.Header{
		"Content-Type": {"text/plain"}, "traceparent": {"00-1-2-3"}, "X-Many": {"a", "b"}, "lower": {"x"}, "Flowgate-User": {"u1"},
		"Flowgate-Id": {"acme/7"}, "Flowgate-Tenant": {"acme"}, "Flowgate-Topic": {"orders.new"}, "Flowgate-Seq": {"7"}, "Flowgate-Attempt": {"1"},
		"Flowgate-Admitted-At": {"2026-11-12T13:14:15.161718Z"}, "Nats-Msg-Id": {"acme/7"},
	}
	if diff := cmp.Diff(want, got.Header); diff != "" {
		t.Errorf("headers (-want +got):\n%s", diff)
	}
	if got, err = sub.NextMsg(20 * time.Second); err != nil || got.Subject != "out.orders.acme" || len(got.Data) > 0 {
		t.Errorf("without a topic: %+v, %v", got, err)
	}
}

// A stream there stores a message once, however often it is delivered, and answers a
// request itself.
func TestNATSIntoAStream(t *testing.T) {
	s := natsServer(t, nil)
	nc := natsConn(t, s.ClientURL())
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	stream, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "OUT", Subjects: []string{"out.>"}, MaxMsgs: 3, Discard: jetstream.DiscardNew, MaxMsgSize: 2000})
	if err != nil {
		t.Fatal(err)
	}
	asked := toNATS(t, nc, "nats:out?ack=reply")
	wantKinds(t, toNATS(t, nc, "nats:out").Deliver(t.Context(), deliveries(2)), Done, Done)
	wantKinds(t, asked.Deliver(t.Context(), deliveries(3)), Done, Done, Done)
	if info, err := stream.Info(t.Context()); err != nil || info.State.Msgs != 3 {
		t.Errorf("%+v, %v", info.State, err)
	}
	wantError(t, deliver(t, asked, aDelivery(4), Overload), "503", "10077")
	large := aDelivery(5)
	large.Payload = make([]byte, 3000)
	wantError(t, deliver(t, asked, large, Reject), "400", "10054")
	if err := js.DeleteStream(t.Context(), "OUT"); err != nil {
		t.Fatal(err)
	}
	wantError(t, deliver(t, asked, aDelivery(6), Overload), "nobody listens below out")
}

func TestNATSReplies(t *testing.T) {
	s := natsServer(t, nil)
	// The payload says what to reply.
	replies(t, s, "out.>", func(m *nats.Msg) {
		switch text := string(m.Data); text {
		case "silence":
		case "service":
			_ = m.RespondMsg(&nats.Msg{Header: nats.Header{micro.ErrorHeader: {"busy"}, micro.ErrorCodeHeader: {"429"}, "Retry-After": {"4"}}})
		default:
			_ = m.Respond([]byte(text))
		}
	})
	d := toNATS(t, natsConn(t, s.ClientURL()), "nats:out?ack=reply", func(c *Config) { c.Order = OrderTenant })
	saying := func(texts ...string) []Delivery {
		batch := deliveries(len(texts))
		for i, text := range texts {
			batch[i].Payload = []byte(text)
		}
		return batch
	}
	wantKinds(t, d.Deliver(t.Context(), saying("", "+ACK", `{"stream":"S","seq":1}`)), Done, Done, Done)
	answers := d.Deliver(t.Context(), saying("", "service", ""))
	wantKinds(t, answers, Done, Overload, Hold)
	if v := Judge(answers[1]); v.Wait != 4*time.Second || !strings.Contains(v.Err.Error(), "busy") {
		t.Errorf("%+v", v)
	}
	wantKinds(t, d.Deliver(t.Context(), saying(`{"error":"no"}`, "")), Retry, Hold)
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	answers = d.Deliver(ctx, saying("silence", ""))
	wantKinds(t, answers, Retry, Hold)
	wantError(t, answers[0], "no reply from out.acme.orders.new in time")
}

func TestReplyVerdict(t *testing.T) {
	for name, c := range map[string]struct {
		header nats.Header
		body   string
		want   VerdictKind
		wait   time.Duration
	}{
		"empty":                     {nil, "", Done, 0},
		"text":                      {nil, "error", Done, 0},
		"a PubAck":                  {nil, `{"stream":"S","domain":"d","seq":9,"duplicate":true}`, Done, 0},
		"no error":                  {nil, `{"error":null}`, Done, 0},
		"error: false":              {nil, `{"error": false}`, Done, 0},
		"error: empty":              {nil, `{"error":""}`, Done, 0},
		"not JSON":                  {nil, `{"error":`, Done, 0},
		"an array":                  {nil, `["error"]`, Done, 0},
		"a full stream":             {nil, `{"error":{"code":503,"err_code":10077,"description":"maximum messages exceeded"},"stream":"S","seq":0}`, Overload, 0},
		"too large":                 {nil, `{"error":{"code":400,"err_code":10054,"description":"message size exceeds maximum allowed"}}`, Reject, 0},
		"a server's fault":          {nil, `{"error":{"code":500,"err_code":10051}}`, Retry, 0},
		"a flowgate's limit":        {nil, `{"type":"io.flowgate.v1.nak","error":{"code":429,"err_code":60429},"retry_after_ms":250.5}`, Overload, 250500 * time.Microsecond},
		"a flowgate's refusal":      {nil, `{"type":"io.flowgate.v1.nak","error":{"code":403,"err_code":60403},"retry_after_ms":0}`, Reject, 0},
		"a pause without end":       {nil, `{"error":{"code":429},"retry_after_ms":1e300}`, Overload, time.Hour},
		"a pause below zero":        {nil, `{"error":{"code":429},"retry_after_ms":-1}`, Overload, 0},
		"an error's text":           {nil, ` {"error":"no"}`, Retry, 0},
		"an error of another form":  {nil, `{"error":{"message":"no"}}`, Retry, 0},
		"a code that is none":       {nil, `{"error":{"code":70001}}`, Retry, 0},
		"a service's error":         {nats.Header{"Nats-Service-Error": {"no"}, "Nats-Service-Error-Code": {"400"}}, "", Reject, 0},
		"a service that is full":    {nats.Header{"Nats-Service-Error": {"no"}, "Nats-Service-Error-Code": {"503"}, "Retry-After": {"5"}}, "", Overload, 5 * time.Second},
		"a service's own code":      {nats.Header{"Nats-Service-Error": {"no"}, "Nats-Service-Error-Code": {"E_NO"}}, "ok", Retry, 0},
		"a service without a code":  {nats.Header{"Nats-Service-Error": {"no"}}, "", Retry, 0},
		"a status":                  {nats.Header{"Status": {"503"}, "Description": {"No Responders"}}, "", Overload, 0},
		"a status that is good":     {nats.Header{"Status": {"200"}}, "", Done, 0},
		"a status of somebody else": {nats.Header{"Status": {"paid"}}, "", Done, 0},
	} {
		got := Judge(replyVerdict("out.a.b", &nats.Msg{Header: c.header, Data: []byte(c.body)}))
		if got.Kind != c.want || got.Wait != c.wait {
			t.Errorf("%s: %s after %s, want %s after %s: %v", name, got.Kind, got.Wait, c.want, c.wait, got.Err)
		}
	}
}

// What is larger than the server takes never fits; its neighbours go.
func TestNATSPayloadTooLarge(t *testing.T) {
	s := natsServer(t, func(o *server.Options) { o.MaxPayload = 2000 })
	nc := natsConn(t, s.ClientURL())
	replies(t, s, "out.>", func(m *nats.Msg) { _ = m.Respond(nil) })
	for _, url := range []string{"nats:out", "nats:out?ack=reply"} {
		batch := deliveries(3)
		batch[1].Payload = make([]byte, 2000)
		answers := toNATS(t, nc, url).Deliver(t.Context(), batch)
		wantKinds(t, answers, Done, Reject, Done)
		wantError(t, answers[1], "max_payload of 2000")
		inOrder := toNATS(t, nc, url, func(c *Config) { c.Order = OrderTenant })
		wantKinds(t, inOrder.Deliver(t.Context(), batch), Done, Reject, Hold)
	}
}

// The server says that a right is missing, and not to whom: nothing is called done.
func TestNATSWithoutTheRight(t *testing.T) {
	s := natsServer(t, func(o *server.Options) {
		o.Users = []*server.User{{Username: "gate", Password: "gate", Permissions: &server.Permissions{Publish: &server.SubjectPermission{Deny: []string{"out.globex.>"}}}}}
	})
	nc := natsConn(t, strings.Replace(s.ClientURL(), "nats://", "nats://gate:gate@", 1))
	other := aDelivery(2)
	other.Tenant = "globex"
	d := toNATS(t, nc, "nats:out")
	for range 2 {
		answers := d.Deliver(t.Context(), []Delivery{aDelivery(1), other})
		wantKinds(t, answers, Overload, Overload)
		wantError(t, answers[1], "ermission", "out.globex.orders.new")
		wantKinds(t, d.Deliver(t.Context(), deliveries(1)), Done) // it is no news
	}
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	answers := toNATS(t, nc, "nats:out?ack=reply").Deliver(ctx, []Delivery{other})
	wantKinds(t, answers, Overload)
	wantError(t, answers[0], "out.globex.orders.new")
}

// swallower forwards TCP to a server until it is told to swallow what comes.
type swallower struct {
	url     string
	swallow atomic.Bool
}

func swallowing(t *testing.T, to string) *swallower {
	t.Helper()
	l := listen(t)
	s := &swallower{url: "nats://" + l.Addr().String()}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			up, err := net.Dial("tcp", to)
			if err != nil {
				_ = c.Close()
				continue
			}
			go func() { _, _ = io.Copy(c, up); _ = c.Close() }()
			go func() {
				defer func() { _ = up.Close() }()
				buf := make([]byte, 4096)
				for {
					n, err := c.Read(buf)
					if err != nil {
						return
					}
					if !s.swallow.Load() {
						_, _ = up.Write(buf[:n])
					}
				}
			}()
		}
	}()
	return s
}

// A publish that a connection took and no server got is not done.
func TestNATSDeadConnections(t *testing.T) {
	s := natsServer(t, nil)
	replies(t, s, "out.>", func(m *nats.Msg) { _ = m.Respond(nil) })
	dead := swallowing(t, s.Addr().String())
	nc := natsConn(t, dead.url)
	for _, url := range []string{"nats:out", "nats:out?ack=reply"} {
		dead.swallow.Store(false)
		d := toNATS(t, nc, url)
		deliver(t, d, aDelivery(1), Done)
		dead.swallow.Store(true)
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		want := Overload
		if strings.Contains(url, "reply") {
			want = Retry // as silent as a replier that hangs
		}
		wantKinds(t, d.Deliver(ctx, deliveries(2)), want, Overload)
		cancel()
	}
	// What went out over a connection before is not vouched for by the next one.
	nc = natsConn(t, s.ClientURL())
	d := NewNATS(nc, NATSTarget{Prefix: "out"}, OrderNone, time.Minute)
	before := d.look()
	if err := nc.ForceReconnect(); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(20 * time.Second); d.since(before) == nil; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("a new connection is not noticed")
		}
	}
	// Gone altogether, it says so at once.
	s.Shutdown()
	s.WaitForShutdown()
	for _, url := range []string{"nats:out", "nats:out?ack=reply"} {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		wantKinds(t, toNATS(t, nc, url).Deliver(ctx, deliveries(2)), Overload, Overload)
		if ctx.Err() != nil {
			t.Errorf("%s: it took the whole time of the attempt", url)
		}
		cancel()
	}
}

// Who waits for a reply when the connection breaks does not wait for the whole time of
// the attempt, and it is no message's fault.
func TestNATSBreaksBeforeTheReply(t *testing.T) {
	s := natsServer(t, nil)
	heard := make(chan struct{}, 1)
	replies(t, s, "out.>", func(*nats.Msg) { heard <- struct{}{} })
	d := toNATS(t, natsConn(t, s.ClientURL()), "nats:out?ack=reply", func(c *Config) { c.Timeout = time.Hour })
	verdicts := make(chan []error, 1)
	go func() { verdicts <- d.Deliver(t.Context(), deliveries(2)) }()
	<-heard
	s.Shutdown()
	s.WaitForShutdown()
	select {
	case got := <-verdicts:
		wantKinds(t, got, Overload, Overload)
	case <-time.After(time.Minute):
		t.Fatal("it waits on")
	}
}

// Deliveries at once over one connection each have what is theirs.
func TestNATSDeliversAtOnce(t *testing.T) {
	s := natsServer(t, nil)
	sub := hear(t, s, "out.>")
	if err := sub.SetPendingLimits(-1, -1); err != nil {
		t.Fatal(err)
	}
	d := toNATS(t, natsConn(t, s.ClientURL()), "nats:out")
	var running sync.WaitGroup
	for range 8 {
		running.Go(func() {
			for range 20 {
				for _, err := range d.Deliver(t.Context(), deliveries(5)) {
					if err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	running.Wait()
	for i := range 800 {
		if _, err := sub.NextMsg(20 * time.Second); err != nil {
			t.Fatalf("message %d of 800: %v", i, err)
		}
	}
}

func TestNATSURLs(t *testing.T) {
	for url, want := range map[string]NATSTarget{
		"nats:orders":               {Prefix: "orders"},
		"nats:orders.out":           {Prefix: "orders.out"},
		"nats:A-1._b.c_?ack=reply":  {Prefix: "A-1._b.c_", Reply: true},
		"nats:orders.out?ack=reply": {Prefix: "orders.out", Reply: true},
	} {
		got, ok := Config{URL: url}.NATS()
		if err := ValidateURL(url); err != nil || !ok || got != want {
			t.Errorf("%s: %+v, %v", url, got, err)
		}
	}
	for url, says := range map[string]string{
		"nats:": "subject prefix", "nats:.": "subject prefix", "nats:a.": "subject prefix", "nats:.a": "subject prefix", "nats:a..b": "subject prefix", "nats:a.>": "subject prefix",
		"nats:*": "subject prefix", "nats:a b": "subject prefix", "nats:$JS.API": "subject prefix", "nats:_INBOX": "subject prefix", "nats:_R_.x": "subject prefix", "nats:a.$x": "subject prefix", "nats:ä": "subject prefix",
		"nats:" + strings.Repeat("a", 256): "subject prefix",
		"nats://u:hunter2@h:4222":          "FLOWGATE_NATS_URL",
		"nats:a?":                          "?ack=reply", "nats:a?ack=none": "?ack=reply", "nats:a?ack=reply&ack=reply": "?ack=reply", "nats:a?ack=reply&x=1": "?ack=reply", "nats:a?Ack=reply": "?ack=reply", "nats:a?%zz": "?ack=reply",
	} {
		err := ValidateURL(url)
		wantError(t, err, says)
		if strings.Contains(err.Error(), "hunter2") {
			t.Errorf("the error shows the password: %v", err)
		}
	}
}

func BenchmarkNATS(b *testing.B) {
	s, err := server.NewServer(&server.Options{DontListen: true, NoSigs: true, NoLog: true})
	if err != nil {
		b.Fatal(err)
	}
	s.Start()
	defer s.Shutdown()
	nc, err := nats.Connect("", nats.InProcessServer(s))
	if err != nil {
		b.Fatal(err)
	}
	defer nc.Close()
	d := NewNATS(nc, NATSTarget{Prefix: "out"}, OrderNone, time.Minute)
	for name, n := range map[string]int{"batch=1": 1, "batch=100": 100} {
		b.Run(name, func(b *testing.B) {
			batch := deliveries(n)
			b.ReportAllocs()
			for b.Loop() {
				if err := d.Deliver(b.Context(), batch)[0]; err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*n), "ns/msg")
		})
	}
}
