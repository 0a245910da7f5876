package shaper

import (
	"strconv"
	"strings"
)

// A handle is the subject that acknowledges a message. As text it would take more than
// a small payload does, for each message of the backlog; so what all have in common is
// kept once, and of the numbers only the consumer's own: the others are known, or say
// nothing to the server, like how often the message was handed out.
//
//	$JS.ACK.<…>.<stream>.<consumer>.<delivered>.<stream seq>.<consumer seq>.<time>.<pending>

// readHandle splits the reply subject of the message seq that was stored at an instant;
// ok is false for a form that we do not know.
func readHandle(reply string, seq uint64, stored int64) (prefix string, consumer uint64, ok bool) {
	var numbers [5]uint64
	end := len(reply)
	for i := len(numbers) - 1; i >= 0; i-- {
		dot := strings.LastIndexByte(reply[:end], '.')
		n, err := strconv.ParseUint(reply[dot+1:end], 10, 64)
		if dot < 0 || err != nil {
			return "", 0, false
		}
		numbers[i], end = n, dot
	}
	if numbers[0] == 0 || numbers[1] != seq || numbers[3] != uint64(stored) {
		return "", 0, false
	}
	return reply[:end], numbers[2], true
}

// handle makes the subject again.
func handle(prefix string, seq uint64, stored int64, consumer uint64) string {
	b := make([]byte, 0, len(prefix)+5*20)
	b = append(b, prefix...)
	for _, n := range []uint64{1, seq, consumer, uint64(stored), 0} {
		b = append(b, '.')
		b = strconv.AppendUint(b, n, 10)
	}
	return string(b)
}
