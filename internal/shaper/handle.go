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

// newHandle reads the reply subject of the message seq that was stored at an
// instant. A prefix equal to the one given is shared.
func newHandle(reply string, seq uint64, stored int64, shared *string) handle {
	var numbers [5]uint64
	end := len(reply)
	for i := len(numbers) - 1; i >= 0; i-- {
		dot := strings.LastIndexByte(reply[:end], '.')
		n, err := strconv.ParseUint(reply[dot+1:end], 10, 64)
		if dot < 0 || err != nil {
			return handle{prefix: &reply}
		}
		numbers[i], end = n, dot
	}
	if numbers[0] == 0 || numbers[1] != seq || numbers[3] != uint64(stored) {
		return handle{prefix: &reply} // of a form that we do not know
	}
	if shared == nil || *shared != reply[:end] {
		prefix := strings.Clone(reply[:end])
		shared = &prefix
	}
	return handle{prefix: shared, consumer: numbers[2], delivered: numbers[0]}
}

// subject is what the handle was read from, but for how many were pending then,
// which says nothing to the server.
func (h handle) subject(seq uint64, stored int64) string {
	if h.delivered == 0 {
		return *h.prefix
	}
	b := make([]byte, 0, len(*h.prefix)+5*20)
	b = append(b, *h.prefix...)
	for _, n := range []uint64{h.delivered, seq, h.consumer, uint64(stored), 0} {
		b = append(b, '.')
		b = strconv.AppendUint(b, n, 10)
	}
	return string(b)
}
