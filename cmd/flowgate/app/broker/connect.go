package broker

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"golang.org/x/time/rate"
)

// The oldest server that hands a consumer's messages out again on request, which is
// how the gateway recovers.
const (
	needMajor = 2
	needMinor = 14
)

// Connect opens a connection of that name, to the embedded server within the
// process, else to Config's URL. It fails at once if there is no server or if that
// is too old; later it reconnects for ever. Publishing while it is down fails
// instead of being buffered: a producer has to be answered, not kept. opts come
// after the gateway's own and win over them. Answers come to subjects among the
// gateway's own, where clients hear nothing of them. Close closes it.
func (b *Broker) Connect(name string, opts ...nats.Option) (*nats.Conn, error) {
	all := append([]nats.Option{
		nats.Name(b.cfg.Name + " " + name),
		nats.MaxReconnects(-1),
		nats.ReconnectWait(250 * time.Millisecond),
		// Rights that were taken and are given back must find us still there.
		nats.IgnoreAuthErrorAbort(),
		nats.ReconnectBufSize(-1),
		nats.CustomInboxPrefix(b.inbox),
		nats.PingInterval(5 * time.Second),
		nats.MaxPingsOutstanding(2),
	}, b.reports(name)...)
	target, where := b.cfg.URL, redact(b.cfg.URL)
	if b.server != nil {
		target, where = "", "the embedded server"
		all = append(all, nats.InProcessServer(inProcess{b.server}))
	} else {
		all = append(all, b.cfg.tls()...)
	}
	all = append(all, b.signIn()...)
	nc, err := nats.Connect(target, append(all, opts...)...)
	if err != nil {
		return nil, fmt.Errorf("connect to NATS at %s: %w%s", where, bare(err), b.advice(err))
	}
	if err := newEnough(nc.ConnectedServerVersion()); err != nil {
		nc.Close()
		return nil, fmt.Errorf("NATS at %s: %w", where, err)
	}
	b.mu.Lock()
	b.opened = append(b.opened, nc)
	b.mu.Unlock()
	return nc, nil
}

// Client opens a connection as a producer's: to the embedded server within the
// process, else to Config's URL, without the gateway's rights. The caller closes it.
func (b *Broker) Client(opts ...nats.Option) (*nats.Conn, error) {
	if b.server == nil {
		return nats.Connect(b.cfg.URL, append(b.cfg.tls(), opts...)...)
	}
	return nats.Connect("", append([]nats.Option{nats.InProcessServer(inProcess{b.server})}, opts...)...)
}

// reports log what happens to a connection, not more often than every 10 s for each
// kind: a server that refuses everything refuses each message.
func (b *Broker) reports(name string) []nats.Option {
	log := b.log.With("connection", name)
	var failed, down, up rate.Sometimes
	for _, s := range []*rate.Sometimes{&failed, &down, &up} {
		s.First, s.Interval = 3, 10*time.Second
	}
	return []nats.Option{
		nats.ErrorHandler(func(_ *nats.Conn, sub *nats.Subscription, err error) {
			if errors.Is(err, nats.ErrBadHeaderMsg) {
				return // a producer's mistake, counted where the message arrives
			}
			b.heard(err)
			failed.Do(func() {
				if sub != nil {
					log.Warn("NATS error", "subject", sub.Subject, "error", err)
					return
				}
				log.Warn("NATS error", "error", err)
			})
		}),
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) {
			if err != nil { // nil: closed by us
				down.Do(func() { log.Warn("disconnected from NATS", "error", bare(err)) })
			}
		}),
		nats.ReconnectErrHandler(func(_ *nats.Conn, err error) {
			down.Do(func() { log.Warn("not reconnected to NATS yet", "error", bare(err)) })
		}),
		nats.ReconnectHandler(func(nc *nats.Conn) {
			up.Do(func() {
				if b.Embedded() { // within the process; a URL would be somebody else's
					log.Info("reconnected to the embedded NATS server")
					return
				}
				log.Info("reconnected to NATS", "url", redact(nc.ConnectedUrl()))
			})
		}),
		nats.ClosedHandler(func(nc *nats.Conn) {
			// It never gives up by itself, so somebody closed it.
			b.forget(nc)
			log.Debug("connection to NATS closed")
		}),
	}
}

// forget lets a connection go that its user closed.
func (b *Broker) forget(nc *nats.Conn) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.opened = slices.DeleteFunc(b.opened, func(c *nats.Conn) bool { return c == nc })
}

// signIn is how the gateway says who it is.
func (b *Broker) signIn() []nats.Option {
	if b.password != "" {
		return []nats.Option{nats.UserInfo(gatewayUser, b.password)}
	}
	var opts []nats.Option
	c := b.cfg
	if c.Creds != "" {
		opts = append(opts, nats.UserCredentials(c.Creds))
	}
	if c.User != "" {
		opts = append(opts, nats.UserInfo(c.User, c.Password))
	}
	if c.Token != "" {
		opts = append(opts, nats.Token(c.Token))
	}
	return opts
}

func (c Config) tls() []nats.Option {
	var opts []nats.Option
	if c.TLSCA != "" {
		opts = append(opts, nats.RootCAs(c.TLSCA))
	}
	if c.TLSCert != "" {
		opts = append(opts, nats.ClientCert(c.TLSCert, c.TLSKey))
	}
	return opts
}

// advice says what to do about err where the error itself does not.
func (b *Broker) advice(err error) string {
	switch {
	case !errors.Is(err, nats.ErrAuthorization) && !errors.Is(err, nats.ErrAuthExpired):
		return ""
	case b.server != nil:
		return "; FLOWGATE_NATS_CONFIG defines users: set FLOWGATE_NATS_USER and FLOWGATE_NATS_PASSWORD, _TOKEN or _CREDS to one that may do everything in its account"
	}
	return "; check FLOWGATE_NATS_USER and FLOWGATE_NATS_PASSWORD, _TOKEN or _CREDS"
}

// newEnough refuses a server that cannot reset a consumer.
func newEnough(version string) error {
	parts := strings.SplitN(version, ".", 3)
	if len(parts) >= 2 {
		major, err1 := strconv.Atoi(parts[0])
		minor, err2 := strconv.Atoi(parts[1])
		if err1 == nil && err2 == nil && (major > needMajor || major == needMajor && minor >= needMinor) {
			return nil
		}
	}
	return fmt.Errorf("the server's version is %q; flowgate needs %d.%d or later (consumer reset): upgrade it, or unset FLOWGATE_NATS_URL to use the embedded server", version, needMajor, needMinor)
}

// redact hides what signs in from URLs.
func redact(urls string) string {
	var out []string
	for u := range strings.SplitSeq(urls, ",") {
		u = strings.TrimSpace(u)
		if !strings.Contains(u, "://") {
			u = "nats://" + u
		}
		parsed, err := url.Parse(u)
		// A slash or the like in a password ends the host too early: what signs in
		// stands on both sides of it then.
		if err != nil || parsed.User == nil && strings.Contains(u, "@") {
			out = append(out, "(a URL that does not parse)")
			continue
		}
		out = append(out, parsed.Scheme+"://"+parsed.Host)
	}
	return strings.Join(out, ",")
}

// bare takes what may hold a password out of an error about parsing a URL: that is
// the URL, and also the reason, which cites what it takes for a port or an escape.
func bare(err error) error {
	if _, ok := errors.AsType[*url.Error](err); ok {
		return errors.New("FLOWGATE_NATS_URL does not parse; a password with special characters goes into FLOWGATE_NATS_PASSWORD")
	}
	return err
}

// Payload is the largest message, headers included, that producers may send over
// nc's server, in bytes: what is configured, or less if that server would not take
// it with the gateway's own headers. It is below 1 if the server takes nothing.
func (b *Broker) Payload(nc *nats.Conn) int {
	return min(b.cfg.MaxPayload, int(nc.MaxPayload())-ownHeaders)
}
