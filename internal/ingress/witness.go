package ingress

import "strings"

// Witness hears of every decision, on the way of the message: it must be quick, and must
// not keep the strings, which hold the message itself.
type Witness interface {
	Admitted(now int64, tenant string)
	Refused(now int64, e Evidence)
}

// Evidence is a refusal and whom it met.
type Evidence struct {
	// Tenant is empty if there is no valid name. ID is the message's own, empty without one.
	Tenant, ID, Transport string
	Refusal               *Refusal
	// Enforced is false for what was admitted all the same, in shadow.
	Enforced bool
}

// Recorder hears of every message with a tenant and a topic as it comes, before anything
// is decided, while Recording. It must be quick, and must not keep the strings. It is
// called from several goroutines.
type Recorder interface {
	Recording() bool
	Arrived(at int64, tenant, topic, id string, bytes int)
}

// record tells the recorder of a message.
func (n *NATS) record(in incoming) {
	tenant, topic, problem := splitSubject(n.door.prefix, in.msg.Subject)
	if problem == "" {
		n.deps.Recorder.Arrived(in.at, tenant, topic, messageID(in, tenant), len(in.msg.Data))
	}
}

// witness tells of a refusal.
func (n *NATS) witness(in incoming, tenant string, r *Refusal, now int64, enforced bool) {
	if n.deps.Witness == nil {
		return
	}
	if tenant == "" { // it was refused unread
		tenant, _, _ = splitSubject(n.door.prefix, in.msg.Subject)
	}
	n.deps.Witness.Refused(now, Evidence{
		Tenant: tenant, ID: messageID(in, tenant), Transport: in.transport(), Refusal: r, Enforced: enforced,
	})
}

// messageID is a message's own id; the door has put its tenant before it, or not yet.
func messageID(in incoming, tenant string) string {
	if in.msg.Header == nil {
		return ""
	}
	ids := in.msg.Header[msgIDHeader]
	if len(ids) == 0 {
		return ""
	}
	id := ids[0]
	if len(id) > len(tenant) && id[len(tenant)] == '/' && strings.HasPrefix(id, tenant) {
		id = id[len(tenant)+1:]
	}
	return id[:min(len(id), MaxMsgID)]
}
