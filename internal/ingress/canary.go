package ingress

import (
	"encoding/json"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go"
)

// canaryKind is what a canary's answer says of the messages before it.
type canaryKind uint8

const (
	// canaryThrough: the stream has worked off all that went before.
	canaryThrough canaryKind = iota
	// canaryNoStream: nobody listens; they are lost.
	canaryNoStream
	// canaryUnsure: the answer did not come out of the stream's own order.
	canaryUnsure
)

type canaryAnswer struct {
	kind    canaryKind
	lastSeq uint64
	// known is false if the answer does not carry the stream's last sequence.
	known bool
}

// The broker's error codes that a canary can meet (nats-server errors.json).
const (
	wrongLastSequence = 10071
	streamFull        = 10077
)

const wrongLastPrefix = "wrong last sequence: "

// readCanary reads the answer to a canary that was to be stored, or to be refused:
// any other kind of answer is not this stream's.
func readCanary(m *nats.Msg, stored bool) canaryAnswer {
	if len(m.Data) == 0 {
		// 503 in the header: no responders.
		return canaryAnswer{kind: canaryNoStream}
	}
	var ack struct {
		Error *struct {
			ErrCode     int    `json:"err_code"`
			Description string `json:"description"`
		} `json:"error"`
		Seq uint64 `json:"seq"`
	}
	if json.Unmarshal(m.Data, &ack) != nil {
		return canaryAnswer{kind: canaryUnsure}
	}
	if ack.Error == nil {
		if !stored || ack.Seq == 0 {
			return canaryAnswer{kind: canaryUnsure}
		}
		return canaryAnswer{lastSeq: ack.Seq, known: true}
	}
	switch ack.Error.ErrCode {
	case wrongLastSequence:
		number, ok := strings.CutPrefix(ack.Error.Description, wrongLastPrefix)
		seq, err := strconv.ParseUint(number, 10, 64)
		return canaryAnswer{lastSeq: seq, known: ok && err == nil}
	case streamFull:
		return canaryAnswer{}
	}
	// 10167, too many requests, among them: the broker turned it away before the queue.
	return canaryAnswer{kind: canaryUnsure}
}
