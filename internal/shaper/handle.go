package shaper

import (
	"strconv"
	"strings"
)

// handle is the subject that acknowledges a message: what the consumer's handles
// have in common, and the numbers that tell this one apart. As text it would take
// more than a small payload does, for each message of the backlog.
//
//	$JS.ACK.<…>.<stream>.<consumer>.<delivered>.<stream seq>.<consumer seq>.<time>.<pending>
type handle struct {
	// prefix is all before the numbers; with delivered 0, the whole subject.
	prefix    *string
	consumer  uint64
	delivered uint64
}

// newHandle reads a reply subject. A prefix equal to the one given is shared.
func newHandle(reply string, shared *string) handle {
	rest, at := reply, len(reply)
	var numbers [5]string
	for i := range numbers {
		dot := strings.LastIndexByte(rest[:at], '.')
		if dot < 0 {
			return handle{prefix: &reply}
		}
		numbers[len(numbers)-1-i] = rest[dot+1 : at]
		at = dot
	}
	delivered, err1 := strconv.ParseUint(numbers[0], 10, 64)
	consumer, err2 := strconv.ParseUint(numbers[2], 10, 64)
	if err1 != nil || err2 != nil || delivered == 0 {
		return handle{prefix: &reply}
	}
	if shared == nil || *shared != reply[:at] {
		prefix := strings.Clone(reply[:at])
		shared = &prefix
	}
	return handle{prefix: shared, consumer: consumer, delivered: delivered}
}

// subject is what the handle was read from, but for how many were pending then,
// which says nothing to the server.
func (h handle) subject(seq uint64, at int64) string {
	if h.delivered == 0 {
		return *h.prefix
	}
	b := make([]byte, 0, len(*h.prefix)+5*20)
	b = append(b, *h.prefix...)
	for _, n := range []uint64{h.delivered, seq, h.consumer, uint64(at), 0} {
		b = append(b, '.')
		b = strconv.AppendUint(b, n, 10)
	}
	return string(b)
}
