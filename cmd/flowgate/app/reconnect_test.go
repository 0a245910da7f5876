package app

import (
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// elsewhere is a NATS server that is not the gateway's and can be stopped.
type elsewhere struct {
	t    *testing.T
	dir  string
	port int
	s    *server.Server
}

func (e *elsewhere) start() {
	e.t.Helper()
	s, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: e.port, JetStream: true, StoreDir: e.dir, NoSigs: true, NoLog: true})
	if err != nil {
		e.t.Fatal(err)
	}
	s.Start()
	if !s.ReadyForConnections(10 * time.Second) {
		e.t.Fatal("the server is not ready")
	}
	e.s = s
	e.port = s.Addr().(*net.TCPAddr).Port
}

func (e *elsewhere) stop() {
	e.s.Shutdown()
	e.s.WaitForShutdown()
}

// A broker that is away for longer than the lease holds does not end the gateway:
// it delivers nothing meanwhile, and goes on by itself.
func TestBrokerAway(t *testing.T) {
	broker := &elsewhere{t: t, dir: t.TempDir(), port: -1}
	broker.start()
	defer func() { broker.stop() }()
	r := startIn(t, t.TempDir(), &sink{}, fmt.Sprintf("FLOWGATE_NATS_URL=nats://127.0.0.1:%d", broker.port), "FLOWGATE_NATS_LISTEN=", "FLOWGATE_SHAPER_RATE=20/s")
	nc, err := nats.Connect(broker.s.ClientURL(), nats.MaxReconnects(-1), nats.ReconnectWait(50*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	r.admitted(js, "acme", 60)
	time.Sleep(time.Second)
	broker.stop()
	time.Sleep(4 * time.Second)
	if code, _ := get(r, "/readyz"); code != 503 {
		t.Errorf("readyz says %d without the broker", code)
	}
	if s := read[Status](t, r, "/api/v1/status"); s.Replica.Leader || !s.Replica.Lost {
		t.Errorf("without the broker the replica is %+v", s.Replica)
	}
	during := len(r.sink.log())
	time.Sleep(time.Second)
	if n := len(r.sink.log()); n > during {
		t.Errorf("%d deliveries began without the lease", n-during)
	}
	broker.start()
	deadline := time.After(20 * time.Second)
	for {
		if code, _ := get(r, "/readyz"); code == 200 && len(delivered(r.sink.log())) == 60 {
			break
		}
		select {
		case <-r.ended:
			t.Fatalf("the gateway ended: %v", r.result)
		case <-deadline:
			_, body := get(r, "/readyz")
			t.Fatalf("%d of 60 delivered 20 s after the broker came back\n%s", len(delivered(r.sink.log())), body)
		case <-time.After(20 * time.Millisecond):
		}
	}
	// A machine with much else to do may have one unconfirmed in time yet.
	for end := time.Now().Add(20 * time.Second); ; {
		_, err := js.Publish(t.Context(), "ingress.acme.orders", nil, jetstream.WithMsgID("afterwards"))
		if err == nil {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("nothing is admitted 20 s after the broker came back: %v", err)
		}
		time.Sleep(100 * time.Millisecond)
	}
	for id, n := range delivered(r.sink.log()) {
		if n > 1 {
			t.Errorf("%s was delivered %d times", id, n)
		}
	}
}
