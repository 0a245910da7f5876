package shaper

import (
	"encoding/binary"
	"math/bits"
	"strconv"
	"strings"
	"time"
	"unsafe"

	"github.com/flowgate/flowgate/internal/consumers"
)

// state is where a message of the index is.
type state uint32

const (
	waiting state = iota
	delayed
	inFlight
)

// message is one undelivered message of the backlog: 48 bytes, since there may be
// millions. What only few of them need is kept elsewhere: attempts in the index, a
// due time with the delayed, the topic and the headers in the body.
type message struct {
	seq uint64
	at  int64 // when the broker stored it, Unix ns
	// consumer is its number among all that the consumer handed out: a part of its ack.
	consumer uint64
	// body is the packed topic, headers and payload; nil if they are not in memory. A
	// slice would take 24 bytes.
	body *byte
	size uint32 // of the body, in memory or not
	next ref    // in the lane's queue
	lane uint32
	bits uint32
}

// What the bits say, from the lowest: the cost, the generation of the handle, the
// state, and flags.
const (
	costBits          = 20
	genShift          = costBits
	genBits           = 8
	genMask    uint32 = 1<<genBits - 1
	stateShift        = genShift + genBits
	stateMask  uint32 = 3 << stateShift

	// loading: its body is being read, or, if it has that, its attempt written down.
	loading uint32 = 1 << (stateShift + 2)
	// careful: its next attempt is to be written down first.
	careful uint32 = 1 << (stateShift + 3)
)

func (m *message) cost() uint64 { return max(1, uint64(m.bits&(1<<costBits-1))) }

func (m *message) setCost(cost uint64) {
	m.bits = m.bits&^(1<<costBits-1) | uint32(min(cost, 1<<costBits-1))
}

// gen is the generation of its handle, of which the last bits tell enough: between two
// resets of the consumer all handles are renewed.
func (m *message) gen() uint8 { return uint8(m.bits >> genShift) }

func (m *message) setGen(gen uint32) {
	m.bits = m.bits&^(genMask<<genShift) | gen&genMask<<genShift
}

func (m *message) state() state { return state(m.bits & stateMask >> stateShift) }

func (m *message) setState(s state) { m.bits = m.bits&^stateMask | uint32(s)<<stateShift }

func (m *message) is(flag uint32) bool { return m.bits&flag != 0 }

func (m *message) set(flag uint32, on bool) {
	if m.bits &^= flag; on {
		m.bits |= flag
	}
}

// loaded reports whether the body is in memory.
func (m *message) loaded() bool { return m.body != nil }

// ready reports whether m could leave now.
func (m *message) ready() bool { return m.loaded() && !m.is(careful) }

// setBody gives m its packed body, which is never empty.
func (m *message) setBody(body []byte) {
	m.body, m.size = unsafe.SliceData(body), uint32(len(body))
}

func (m *message) packed() []byte { return unsafe.Slice(m.body, m.size) }

const (
	msgIDHeader    = "Nats-Msg-Id"
	deadlineHeader = "Flowgate-Deadline"
	costHeader     = "Flowgate-Cost"
)

// costOf is what a message counts for in the fair share: 1 without a cost of its own.
func costOf(headers map[string][]string) uint64 {
	n, err := strconv.ParseUint(first(headers[costHeader]), 10, costBits)
	if err != nil {
		return 1 // the front door lets nothing else in
	}
	return max(1, n)
}

// pack puts topic, headers and payload into one piece, of packedSize bytes. A map and a
// string a message would cost more than most payloads.
func pack(topic string, headers map[string][]string, payload []byte) []byte {
	b := appendText(make([]byte, 0, packedSize(topic, headers, payload)), topic)
	b = binary.AppendUvarint(b, uint64(values(headers)))
	for k, vs := range headers {
		for _, v := range vs {
			b = appendText(appendText(b, k), v)
		}
	}
	return append(b, payload...)
}

func packedSize(topic string, headers map[string][]string, payload []byte) int {
	size := textSize(topic) + uvarintSize(values(headers)) + len(payload)
	for k, vs := range headers {
		for _, v := range vs {
			size += textSize(k) + textSize(v)
		}
	}
	return size
}

func values(headers map[string][]string) (n int) {
	for _, vs := range headers {
		n += len(vs)
	}
	return n
}

func textSize(s string) int { return uvarintSize(len(s)) + len(s) }

func uvarintSize(n int) int { return (bits.Len64(uint64(n)|1) + 6) / 7 }

func appendText(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

// unpack undoes pack.
func unpack(b []byte) (topic string, headers map[string][]string, payload []byte) {
	text := func() string {
		n, used := binary.Uvarint(b)
		s := string(b[used : used+int(n)])
		b = b[used+int(n):]
		return s
	}
	topic = text()
	n, used := binary.Uvarint(b)
	b = b[used:]
	if n > 0 {
		headers = make(map[string][]string, n)
	}
	for range n {
		k := text()
		headers[k] = append(headers[k], text())
	}
	return topic, headers, b
}

// passed reports whether m's deadline has passed at the instant now. It reads the packed
// headers in place: most messages have none.
func (m *message) passed(now int64) bool {
	b := m.packed()
	text := func() []byte {
		n, used := binary.Uvarint(b)
		s := b[used : used+int(n)]
		b = b[used+int(n):]
		return s
	}
	text() // the topic
	n, used := binary.Uvarint(b)
	b = b[used:]
	for range n {
		if k, v := text(), text(); string(k) == deadlineHeader {
			at, err := time.Parse(time.RFC3339Nano, string(v))
			return err == nil && time.Unix(0, now).After(at)
		}
	}
	return false
}

// delivery is the attempt that a message is about to have, after so many that
// counted. Its id is the tenant's own if the producer gave one, else the stream's; the
// producer's header comes back as it was sent.
func (m *message) delivery(origin, tenant string, attempts int, released int64) consumers.Delivery {
	topic, headers, payload := unpack(m.packed())
	d := consumers.Delivery{
		Tenant: tenant, Topic: topic, Seq: m.seq,
		Attempt: attempts + 1,
		Headers: headers, Payload: payload,
		AdmittedAt: time.Unix(0, m.at).UTC(),
		ReleasedAt: time.Unix(0, released).UTC(),
	}
	if ids := headers[msgIDHeader]; len(ids) > 0 && strings.HasPrefix(ids[0], consumers.ReplayID) {
		// No producer's id begins so. It keeps the id it had, and the producer's header.
		d.ID = first(headers[consumers.IDHeader])
		delete(headers, consumers.IDHeader)
		delete(headers, msgIDHeader)
		if own, ok := strings.CutPrefix(d.ID, tenant+"/"); ok {
			headers[msgIDHeader] = []string{own}
		}
	} else if len(ids) > 0 {
		d.ID = ids[0]
		ids[0] = strings.TrimPrefix(ids[0], tenant+"/")
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

func formatSeq(seq uint64) string { return strconv.FormatUint(seq, 10) }
