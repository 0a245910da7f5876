package ingress

import "github.com/nats-io/nats.go"

// Arrival is a message as its span tells of it. What is not known of one that was
// refused is empty.
type Arrival struct {
	Tenant, Subject, ID string
	Transport           string
	Header              nats.Header
	Bytes               int
	At                  int64 // the clock's reading at its receipt
}

// Tracer makes the spans of admissions.
type Tracer interface {
	// Admit opens the span of a message's admission, and gives the header that it goes on
	// with, which may be its own, written to. done closes the span, with why the message
	// was refused, nil if it was not.
	Admit(a Arrival) (header nats.Header, done func(*Refusal))
}

// traceSize is what a trace's context may add to the headers.
const traceSize = len("traceparent: 00-0123456789abcdef0123456789abcdef-0123456789abcdef-01\r\n")

// trace opens the span of a message that is about to be forwarded. One whose headers have
// no room for the context has none.
func (n *NATS) trace(in *incoming, v *verdict) {
	if v.wishes.size+traceSize > maxHeader {
		in.traced = func(*Refusal) {}
		return
	}
	v.out.Header, in.traced = n.deps.Tracer.Admit(in.arrival(v.tenant, v.ask.ID))
}

// traceRefusal makes the span of a refusal, or closes the one that there is.
func (n *NATS) traceRefusal(in incoming, tenant string, r *Refusal) {
	if in.traced == nil {
		_, in.traced = n.deps.Tracer.Admit(in.arrival(tenant, ""))
	}
	in.traced(r)
}

func (in *incoming) arrival(tenant, id string) Arrival {
	return Arrival{
		Tenant: tenant, Subject: in.msg.Subject, ID: id, Transport: in.transport(),
		Header: in.msg.Header, Bytes: len(in.msg.Data), At: in.at,
	}
}

// trace makes the span of a request that led to no message.
func (h *HTTP) trace(q *request, r *Refusal, at int64) {
	header := nats.Header{}
	for _, name := range []string{"Traceparent", "Tracestate"} {
		if values := q.Header[name]; len(values) > 0 {
			header[name] = values
		}
	}
	_, done := h.door.deps.Tracer.Admit(Arrival{Tenant: q.tenant, Transport: overHTTP, Header: header, At: at})
	done(r)
}
