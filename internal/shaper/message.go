package shaper

import (
	"encoding/binary"
	"strings"
	"time"

	"github.com/flowgate/flowgate/internal/consumers"
)

// state is where a message of the index is.
type state uint8

const (
	waiting state = iota
	delayed
	inFlight
)

// message is one undelivered message of the backlog.
type message struct {
	seq   uint64
	lane  *lane
	next  *message // in the lane's queue
	topic string
	// ack acknowledges it; the newest one counts.
	ack handle
	// body is the packed headers and the payload; nil if it is not in memory.
	body []byte
	at   int64 // when the broker stored it, Unix ns
	due  int64 // when it may be tried again, if delayed
	size int32 // of the body
	// headers is the length of the packed headers in body.
	headers  int32
	heap     int32 // its place among the delayed
	attempts int32 // that counted so far
	gen      uint32
	state    state
	loading  bool
	saved    bool // its attempts are in the state bucket
}

const (
	msgIDHeader    = "Nats-Msg-Id"
	deadlineHeader = "Flowgate-Deadline"
)

// pack turns headers into the front part of a body. A map a message would cost
// more than most payloads.
func pack(headers map[string][]string, payload []byte) (body []byte, headerLen int) {
	if len(headers) == 0 {
		return payload, 0
	}
	size := 0
	for k, vs := range headers {
		for _, v := range vs {
			size += len(k) + len(v) + 2*binary.MaxVarintLen32
		}
	}
	body = make([]byte, 0, size+len(payload))
	for k, vs := range headers {
		for _, v := range vs {
			body = binary.AppendUvarint(body, uint64(len(k)))
			body = append(body, k...)
			body = binary.AppendUvarint(body, uint64(len(v)))
			body = append(body, v...)
		}
	}
	headerLen = len(body)
	return append(body, payload...), headerLen
}

// unpack undoes pack.
func unpack(body []byte, headerLen int) (headers map[string][]string, payload []byte) {
	if headerLen == 0 {
		return nil, body
	}
	headers = map[string][]string{}
	text := func(b []byte) (string, []byte) {
		n, used := binary.Uvarint(b)
		return string(b[used : used+int(n)]), b[used+int(n):]
	}
	for b := body[:headerLen]; len(b) > 0; {
		var k, v string
		k, b = text(b)
		v, b = text(b)
		headers[k] = append(headers[k], v)
	}
	return headers, body[headerLen:]
}

// setBody gives m its packed body; nil would say that it is not in memory.
func (m *message) setBody(body []byte, headers int) {
	if body == nil {
		body = []byte{}
	}
	m.body, m.size, m.headers = body, int32(len(body)), int32(headers)
}

// delivery is the attempt that m is about to have. Its id is the tenant's own
// if the producer gave one, else the stream's; the producer's header comes back
// as it was sent.
func (m *message) delivery(origin string, released int64) consumers.Delivery {
	headers, payload := unpack(m.body, int(m.headers))
	d := consumers.Delivery{
		Tenant: m.lane.tenant, Topic: m.topic, Seq: m.seq,
		Attempt: int(m.attempts) + 1,
		Headers: headers, Payload: payload,
		AdmittedAt: time.Unix(0, m.at).UTC(),
		ReleasedAt: time.Unix(0, released).UTC(),
	}
	if ids := headers[msgIDHeader]; len(ids) > 0 && strings.HasPrefix(ids[0], consumers.ReplayID) {
		// No producer's id begins so. It keeps the id it had, and the producer's header.
		d.ID = first(headers[consumers.IDHeader])
		delete(headers, consumers.IDHeader)
		delete(headers, msgIDHeader)
		if own, ok := strings.CutPrefix(d.ID, m.lane.tenant+"/"); ok {
			headers[msgIDHeader] = []string{own}
		}
	} else if len(ids) > 0 {
		d.ID = ids[0]
		ids[0] = strings.TrimPrefix(ids[0], m.lane.tenant+"/")
	} else {
		d.ID = origin + "/" + formatSeq(m.seq)
	}
	if v := headers[deadlineHeader]; len(v) > 0 {
		d.Deadline, _ = time.Parse(time.RFC3339Nano, v[0])
	}
	return d
}

func first(values []string) string {
	if len(values) == 0 {
		return ""
	}
	return values[0]
}
