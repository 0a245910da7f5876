package broker

import (
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strconv"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/flowgate/flowgate/internal/descriptors"
)

// gatewayUser is the gateway's own user in the embedded server; everyone else is
// clientUser, without signing in.
const (
	gatewayUser = "flowgate"
	clientUser  = "client"
)

// defaultSync is the embedded store's period of writing to the disk. It costs
// nothing that could be measured; the server's own, two minutes, is what a power
// cut would lose.
const defaultSync = 100 * time.Millisecond

// options are the embedded server's, and the password of the gateway's own user in
// it; empty if a configuration file says who may sign in.
func (c Config) options() (*server.Options, string, error) {
	store, err := filepath.Abs(filepath.Join(c.DataDir, "jetstream"))
	if err != nil {
		return nil, "", fmt.Errorf("data directory %s: %w", c.DataDir, err)
	}
	opts, password := &server.Options{}, ""
	if c.ConfigFile != "" {
		if opts, err = readFile(c.ConfigFile); err != nil {
			return nil, "", err
		}
	} else {
		password = c.permit(opts)
	}
	if err := c.listen(opts); err != nil {
		return nil, "", err
	}
	if !opts.SyncAlways && opts.SyncInterval == 0 {
		opts.SyncAlways, opts.SyncInterval = c.SyncAlways, c.SyncEvery
		if opts.SyncInterval == 0 {
			opts.SyncInterval = defaultSync
		}
	}
	opts.JetStream, opts.StoreDir = true, store
	opts.NoSigs = true // signals are main's
	opts.DisableJetStreamBanner = true
	if opts.ServerName == "" {
		opts.ServerName = c.Name
	}
	if opts.MaxPayload == 0 {
		opts.MaxPayload = int32(c.MaxPayload + headroom)
	}
	if opts.MaxConn == 0 {
		opts.MaxConn = descriptors.Share(2) // a quarter is HTTP's, and the store needs some
	}
	// The server sets aside each stream's MaxBytes and refuses a stream that does not
	// fit into its limit. Left alone, that limit is three quarters of what is free
	// on the disk, looked up at each start: less, the more the backlog itself holds.
	// Our streams have bounds, and Disk compares them with the disk.
	if opts.JetStreamMaxStore <= 0 {
		opts.JetStreamMaxStore = 1 << 50
	}
	if opts.JetStreamMaxMemory <= 0 {
		opts.JetStreamMaxMemory = 256 << 20 // nothing of ours is kept in memory
	}
	return opts, password, nil
}

// readFile reads a nats-server configuration file. Warnings do not stop it, as they
// do not stop nats-server.
func readFile(path string) (*server.Options, error) {
	opts := &server.Options{}
	err := opts.ProcessConfigFile(path)
	var lines interface{ Errors() []error }
	if errors.As(err, &lines) && len(lines.Errors()) > 0 {
		return nil, fmt.Errorf("FLOWGATE_NATS_CONFIG: %w", errors.Join(lines.Errors()...))
	}
	if err != nil && lines == nil {
		return nil, fmt.Errorf("FLOWGATE_NATS_CONFIG: %s: %w", path, err)
	}
	return opts, nil
}

// listen sets the client address, unless a configuration file has: its silence must
// not open the port to every network, which is the server's own default.
func (c Config) listen(opts *server.Options) error {
	if opts.DontListen || opts.Host != "" || opts.Port != 0 {
		return nil
	}
	if c.Listen == Off {
		if opts.Cluster.Port != 0 || opts.Gateway.Name != "" {
			return errors.New("FLOWGATE_NATS_LISTEN=off: a server in a cluster starts its routes only when it listens for clients; say listen: 127.0.0.1:-1 in FLOWGATE_NATS_CONFIG")
		}
		opts.DontListen = true
		return nil
	}
	host, port, err := net.SplitHostPort(c.Listen)
	if err != nil {
		return fmt.Errorf("FLOWGATE_NATS_LISTEN: %q is not host:port: %w", c.Listen, err)
	}
	n, err := strconv.Atoi(port)
	if err != nil || n < -1 || n > 65535 {
		return fmt.Errorf("FLOWGATE_NATS_LISTEN: port %q is not a number from 0 to 65535", port)
	}
	if n == 0 {
		n = server.RANDOM_PORT
	}
	opts.Host, opts.Port = host, n
	return nil
}

// permit gives clients what a producer needs, and what a consumer over NATS does if
// there is one, and nothing else; the gateway signs in apart, with the password
// returned.
func (c Config) permit(opts *server.Options) string {
	password := rand.Text()
	permissions := &server.Permissions{
		// $SRV.> finds the gateway with `nats micro`.
		Publish:   &server.SubjectPermission{Allow: []string{c.Ingress + ".>", "$SRV.>"}},
		Subscribe: &server.SubjectPermission{Allow: []string{"_INBOX.>", c.Pressure}},
	}
	if c.Deliveries != "" {
		permissions.Subscribe.Allow = append(permissions.Subscribe.Allow, c.Deliveries+".>")
		if c.Replies > 0 {
			permissions.Response = &server.ResponsePermission{MaxMsgs: 1, Expires: c.Replies}
		}
	}
	opts.Users = []*server.User{
		{Username: gatewayUser, Password: password},
		{Username: clientUser, Password: rand.Text(), Permissions: permissions},
	}
	opts.NoAuthUser = clientUser
	return password
}

// alone reports whether the server that opts describe keeps its JetStream to
// itself, so that whoever embedded it before is gone when its store is ours.
func alone(opts *server.Options) bool {
	return opts.Cluster.Port == 0 && opts.Cluster.Name == "" && opts.Gateway.Name == "" &&
		opts.LeafNode.Port == 0 && len(opts.LeafNode.Remotes) == 0
}
