package broker

import "time"

// Off keeps the embedded server from listening.
const Off = "off"

// headroom is how much more than a producer's largest message the embedded server
// takes, in bytes: the gateway adds headers, and so does a dead letter.
const headroom = 64 << 10

// ownHeaders is what the gateway's headers come to at most, in bytes. A dead letter
// has the most of them: an error text of 1,024, a topic of as much, an id of 320
// and nine short ones. A server that we do not configure must leave that much.
const ownHeaders = 4 << 10

// Config says which NATS to use and how to sign in.
type Config struct {
	// Name names the embedded server and the connections.
	Name string
	// DataDir holds the embedded server's store (in jetstream/) and the lock that
	// keeps a second process out. Not locked if URL names another server.
	DataDir string
	// URL is another NATS's, several joined by commas; empty: the embedded server.
	URL string
	// Listen is the embedded server's client address, host:port; port 0 takes a
	// free one. Off: in-process connections only.
	Listen string
	// ConfigFile is a nats-server configuration file for the embedded server; empty:
	// none. What it says wins over Listen, SyncAlways and SyncEvery, and over the
	// permissions of Ingress, Pressure and Deliveries; the store is in DataDir whatever it says.
	// If it defines users, User and Password, Token or Creds must be one of them.
	ConfigFile string

	// Creds is a credentials file; with User and Password, and Token, it signs in to
	// URL's server or to the one that ConfigFile describes. Empty ones are not used.
	Creds, User, Password, Token string
	// TLSCA, TLSCert and TLSKey are files, for URL only: connections to the embedded
	// server do not leave the process.
	TLSCA, TLSCert, TLSKey string

	// SyncAlways writes the embedded store to the disk with each message, else that
	// is done every SyncEvery; 0: every 100 ms.
	SyncAlways bool
	SyncEvery  time.Duration

	// MaxPayload is the largest message that producers may send, headers included,
	// in bytes. The embedded server takes 64 KiB more.
	MaxPayload int
	// Ingress is the subject prefix, without a dot at its end, below which the
	// embedded server lets everyone publish; Pressure the subject that everyone may
	// subscribe to.
	Ingress, Pressure string
	// Deliveries is the subject prefix, without a dot at its end, below which the
	// embedded server lets everyone subscribe; empty: none. Replies is how long whoever
	// got a message there may reply to it, once; 0: not at all.
	Deliveries string
	Replies    time.Duration
}
