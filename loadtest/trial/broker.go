package trial

import (
	"errors"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// broker is a NATS server beside the gateway, which can be stopped and started again on its
// store.
type broker struct {
	port   int
	dir    string
	server *server.Server
}

func (b *broker) start() error {
	s, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: b.port, JetStream: true, StoreDir: b.dir, NoSigs: true, SyncInterval: 100 * time.Millisecond})
	if err != nil {
		return err
	}
	s.Start()
	if !s.ReadyForConnections(10 * time.Second) {
		s.Shutdown()
		return errors.New("the NATS server is not ready after 10 s")
	}
	b.server = s
	return nil
}

func (b *broker) stop() {
	if b.server != nil {
		b.server.Shutdown()
		b.server.WaitForShutdown()
		b.server = nil
	}
}
