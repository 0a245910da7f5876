package ingress

import (
	"fmt"
	"math"
	"path"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
)

// Excess is a limit that a message would exceed.
type Excess struct {
	// Scope, Key and Limit name it: "tenant", "acme", "token-bucket:100/s". Key is
	// empty where the scope has but one, the gateway.
	Scope, Key, Limit string
	// Wait is the least time after which the same message passes; NoRetry if
	// it never will.
	Wait time.Duration
}

// Quota is one limit of a message's scopes, as it stands.
type Quota struct {
	Scope string // "tenant"
	Limit string // the rule's text
	// Capacity is the most that passes at once, and Window the time in which so
	// much comes back; the largest duration if it never does.
	Capacity uint64
	Window   time.Duration
	// Remaining would pass now; Reset is the time until all of Capacity would, below 0
	// if that does not happen.
	Remaining uint64
	Reset     time.Duration
}

// Limits gate admission. Look takes nothing; Take takes from every limit or
// from none. now is in nanoseconds of a monotonic clock. Look and Take come from
// one goroutine, Quotas from any.
type Limits interface {
	Look(now int64, id Identity, cost int64) (Excess, bool)
	Take(now int64, id Identity, cost int64)
	// Quotas tells how id stands; none if nothing limits it.
	Quotas(now int64, id Identity) []Quota
}

// Ask is a message that asks for room in the backlog.
type Ask struct {
	Tenant string
	// ID is its message id, empty without one: by it a retry is known.
	ID string
	// Least is the time after which its limits let it pass, NoRetry if they never do.
	Least time.Duration
}

// Room is what the backlog answers.
type Room struct {
	OK bool
	// Wait is the time after which a retry will pass; Stalled: it is a guess, since
	// nothing is delivered at present.
	Wait    time.Duration
	Stalled bool
	// Full: there is no room at all, which holds in every mode.
	Full bool
	// Own: it is the tenant's own messages that are too many.
	Own bool
}

// Backpressure knows how full the backlog is. Look and the Enter that follows come from
// one goroutine.
type Backpressure interface {
	// Look reports whether the backlog takes a message now. Who is refused may be given
	// a place in time, which a retry finds.
	Look(now int64, ask Ask) Room
	// Full is Look where only the lack of all room counts.
	Full(now int64) (wait time.Duration, full bool)
	// Stay is how long a message admitted now will wait for its delivery.
	Stay(now int64, tenant string) time.Duration
	// Enter counts a message of so many bytes that was decided on at the instant now and
	// forwarded.
	Enter(now int64, ask Ask, bytes int)
}

// Door decides on messages: form and identity first, then every limit is
// looked at, then the backlog, and only then are the limits taken. So a message
// refused for any reason costs nothing, and its hint is the longest wait of all.
//
// A decision costs a map lookup a limit and two uncontended locks; nothing grows
// with the backlog.
type Door struct {
	prefix     string // with its dot
	backlog    string // with its dot
	own        string // the gateway's subject space
	ingress    string
	maxPayload int
	tenants    []string
	keys       *APIKeys // nil: any key passes
	mode       Mode
	limits     Limits
	pressure   Backpressure
	// shut says why nothing is taken at the moment; nil while the door is open.
	shut func() *Refusal
}

// incoming is a message as it came, with the clock's reading.
type incoming struct {
	msg *nats.Msg
	// at is the monotonic instant of receipt, in nanoseconds.
	at int64
	// web: it came over HTTP. Its reply subject is the gateway's own, which no
	// message over NATS may have; ip is the client's address, and apiKey the
	// fingerprint of its key, which was found good.
	web        bool
	ip, apiKey string
	// traced closes its span; nil without one.
	traced func(*Refusal)
}

// verdict is what the door makes of a message.
type verdict struct {
	tenant  string // empty if the name was not valid
	refused *Refusal
	shadow  *Refusal  // what would have refused it in another mode
	out     *nats.Msg // what to forward
	ask     Ask
	topic   string
	id      Identity
	wishes  wishes
}

// mute reports whether a reply subject must never be answered: with the
// gateway's rights it would reach what its sender cannot, or it would cost the
// gateway its connection.
func (d *Door) mute(reply string) bool {
	return reply != "" && (reply[0] == '$' || under(reply, d.ingress) || under(reply, d.own) || !literal(reply) || len(reply) > maxAnswered)
}

// decide judges a message. wall is the time of day that goes with now.
func (d *Door) decide(in incoming, now int64, wall func() time.Time) verdict {
	v := d.read(in, wall)
	if v.refused == nil {
		d.judge(in, &v, now, 0, wall)
	}
	return v
}

// read looks at the form of a message and at who sends it. It rewrites its headers, so
// it is done once.
func (d *Door) read(in incoming, wall func() time.Time) verdict {
	m := in.msg
	tenant, topic, problem := splitSubject(d.prefix, m.Subject)
	v := verdict{tenant: tenant}
	if problem != "" {
		v.refused = invalid("%s", problem)
		return v
	}
	if len(m.Reply) > MaxReply || !plainText(m.Reply) {
		v.refused = invalid("reply subject must be at most %d bytes of valid UTF-8 without NUL", MaxReply)
		return v
	}
	size := m.Size() - len(m.Subject) - len(m.Reply)
	if size > d.maxPayload {
		v.refused = tooLarge(size, d.maxPayload)
		return v
	}
	w := wishes{cost: 1}
	if m.Header != nil {
		if len(m.Data) == 0 && len(m.Header[statusHeader]) > 0 {
			v.refused = invalid("header %s needs a body: without one a consumer takes the message for the broker's own", statusHeader)
			return v
		}
		var r *Refusal
		if w, r = readHeaders(m.Header, tenant, m.Reply, wall()); r != nil {
			v.refused = r
			return v
		}
	} else if size != len(m.Data) {
		v.refused = invalid("headers are malformed")
		return v
	}
	id := Identity{Tenant: tenant, Service: service(topic), User: w.user, IP: w.ip}
	switch {
	case in.web:
		id.IP, id.APIKey = in.ip, in.apiKey
	case w.apiKey != "":
		if d.keys != nil && d.keys.check(w.apiKey, tenant) != keyGood {
			v.refused = wrongKey()
			return v
		}
		id.APIKey = Fingerprint(w.apiKey)
	}
	if !d.allowed(tenant) {
		v.refused = &Refusal{Reason: Forbidden, Text: "tenant " + tenant + " is not allowed here", Wait: NoRetry}
		return v
	}
	v.ask, v.id, v.wishes = Ask{Tenant: tenant, ID: w.id}, id, w
	v.topic = topic
	return v
}

// judge asks whether a message that was read may pass, behind others that will take as
// much as ahead from its limits. It can be asked again. It takes from the limits if ahead
// is 0 and the message passes.
func (d *Door) judge(in incoming, v *verdict, now, ahead int64, wall func() time.Time) {
	v.refused, v.shadow = d.shut(), nil
	if v.refused != nil {
		return
	}
	r, final := d.weigh(now, v, ahead, wall)
	switch {
	case final:
		v.refused = r
		return
	case r != nil:
		// In earnest it would have taken nothing, so that the next would have met
		// the same limits.
		v.shadow = r
	case d.mode != Open && ahead == 0:
		d.limits.Take(now, v.id, v.wishes.cost)
	}
	m := in.msg
	v.out = &nats.Msg{Subject: d.backlog + v.tenant + "." + v.topic, Reply: m.Reply, Header: m.Header, Data: m.Data}
}

// weigh asks the limits and the backlog. final: the refusal holds in this mode. A
// deadline is backpressure's word, too: it would be missed because of the backlog.
func (d *Door) weigh(now int64, v *verdict, ahead int64, wall func() time.Time) (r *Refusal, final bool) {
	w, ask := v.wishes, v.ask
	if d.mode == Open {
		if wait, full := d.pressure.Full(now); full {
			return backlogged(Room{Wait: wait, Full: true}), true
		}
		return nil, false
	}
	excess, within := d.look(now, v.id, w.cost, ahead)
	if !within {
		ask.Least = excess.Wait
	}
	room := d.pressure.Look(now, ask)
	switch {
	case room.Full && d.mode == Shadow:
		return backlogged(room), true
	case !within:
		r = &Refusal{Reason: RateLimited, Text: limitText(excess), Wait: excess.Wait, Scope: excess.Scope, Key: excess.Key, Limit: excess.Limit}
		if !room.OK && excess.Wait != NoRetry {
			r.Wait = max(excess.Wait, room.Wait)
		}
	case room.Own:
		r = &Refusal{Reason: TenantBacklogged, Text: "tenant " + ask.Tenant + " has too many messages in the backlog" + stalledText(room), Wait: room.Wait}
	case !room.OK:
		r = backlogged(room)
	case !w.deadline.IsZero() && wall().Add(d.pressure.Stay(now, ask.Tenant)).After(w.deadline):
		r = &Refusal{Reason: PastDue, Text: "it would wait past its " + deadlineHeader, Wait: NoRetry}
	}
	return r, r != nil && d.mode == Enforce
}

// look asks the limits for a message behind others that take as much as ahead. All
// together may be more than a limit ever lets through at once; then the wait is reckoned
// from that of the message alone, and is rather too short.
func (d *Door) look(now int64, id Identity, cost, ahead int64) (Excess, bool) {
	excess, within := d.limits.Look(now, id, cost+ahead)
	if ahead == 0 || within || excess.Wait != NoRetry {
		return excess, within
	}
	excess, within = d.limits.Look(now, id, cost)
	if within || excess.Wait == NoRetry {
		return excess, within
	}
	each := excess.Wait
	if one, ok := d.limits.Look(now, id, cost+1); !ok && one.Wait != NoRetry {
		each = one.Wait - excess.Wait
	}
	if each > 0 && ahead < int64((math.MaxInt64-excess.Wait)/each) {
		excess.Wait += time.Duration(ahead) * each
	}
	return excess, within
}

func backlogged(room Room) *Refusal {
	return &Refusal{Reason: Backlogged, Text: "the backlog is full" + stalledText(room), Wait: room.Wait}
}

// stalledText says that a hint is a guess.
func stalledText(room Room) string {
	if room.Stalled {
		return ", and nothing is delivered at present"
	}
	return ""
}

func (d *Door) allowed(tenant string) bool {
	if len(d.tenants) == 0 {
		return true
	}
	for _, glob := range d.tenants {
		if ok, _ := path.Match(glob, tenant); ok {
			return true
		}
	}
	return false
}

func tooLarge(size, limit int) *Refusal {
	return &Refusal{Reason: TooLarge, Text: fmt.Sprintf("headers and payload are %d bytes, the limit is %d", size, limit), Wait: NoRetry}
}

func limitText(e Excess) string {
	var b strings.Builder
	b.WriteString(e.Scope)
	if e.Key != "" {
		b.WriteByte(' ')
		b.WriteString(e.Key)
	}
	if e.Wait == NoRetry {
		b.WriteString(" can never pass ")
	} else {
		b.WriteString(" over ")
	}
	b.WriteString(e.Limit)
	return b.String()
}
