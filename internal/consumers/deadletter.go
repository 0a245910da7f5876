package consumers

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// IDHeader carries a message's id.
const IDHeader = "Flowgate-Id"

// ReplayID begins the Nats-Msg-Id of a dead letter that is replayed: a fresh one in
// the stream, while its own id is in IDHeader. No producer's begins so, for those
// begin with the tenant's name.
const ReplayID = "$replay/"

// The headers of a dead letter, and of a delivery over NATS or HTTP.
const (
	tenantHeader   = "Flowgate-Tenant"
	topicHeader    = "Flowgate-Topic"
	seqHeader      = "Flowgate-Seq"
	attemptHeader  = "Flowgate-Attempt"
	admittedHeader = "Flowgate-Admitted-At"
	errorHeader    = "Flowgate-Error"
	classHeader    = "Flowgate-Error-Class"
	attemptsHeader = "Flowgate-Attempts"
)

// maxReason bounds the error text in a dead letter: it must fit where the message
// did.
const maxReason = 1024

// DeadLetters writes dead letters to their stream.
type DeadLetters struct {
	js jetstream.JetStream
	// subjects is the stream's subject space, origin names the backlog stream and
	// its incarnation.
	subjects, origin string
}

// NewDeadLetters writes below subjects, to <subjects>.<tenant>.<topic>. origin
// tells backlog streams apart: sequences begin anew in each.
func NewDeadLetters(js jetstream.JetStream, subjects, origin string) *DeadLetters {
	return &DeadLetters{js: js, subjects: subjects, origin: origin}
}

// Put writes d with the reason of its end and waits for the broker's
// acknowledgement. A repeat, after a crash between this and the message's own ack,
// makes no second entry within the stream's window.
func (l *DeadLetters) Put(ctx context.Context, d Delivery, reason error) error {
	h := nats.Header{}
	for k, vs := range d.Headers {
		if brokers(k) {
			continue // they would drive this stream; the id is in Flowgate-Id
		}
		h[k] = vs
	}
	h.Set(IDHeader, d.ID)
	h.Set(tenantHeader, d.Tenant)
	h.Set(topicHeader, d.Topic)
	h.Set(seqHeader, strconv.FormatUint(d.Seq, 10))
	h.Set(attemptsHeader, strconv.Itoa(d.Attempt))
	h.Set(admittedHeader, d.AdmittedAt.UTC().Format(time.RFC3339Nano))
	h.Set(errorHeader, oneLine(reason))
	h.Set(classHeader, string(ClassOf(reason)))
	h.Set(nats.MsgIdHdr, l.origin+"/"+strconv.FormatUint(d.Seq, 10))
	subject := join(l.subjects, d.Tenant, d.Topic)
	// Without a stream the library would try again while a delivery's place is held.
	_, err := l.js.PublishMsg(ctx, &nats.Msg{Subject: subject, Header: h, Data: d.Payload}, jetstream.WithRetryAttempts(0))
	if err == nil {
		return nil
	}
	if e, ok := errors.AsType[*jetstream.APIError](err); ok && e.ErrorCode == 10077 {
		return fmt.Errorf("the dead-letter stream is full (FLOWGATE_DLQ_MAX_BYTES): %w", err)
	}
	if errors.Is(err, jetstream.ErrNoStreamResponse) || errors.Is(err, nats.ErrNoResponders) {
		return fmt.Errorf("the dead-letter stream is gone: no stream stores %s: %w", subject, err)
	}
	return fmt.Errorf("write dead letter to %s: %w", subject, err)
}

// brokers reports whether a header is one of those that speak to the broker.
func brokers(name string) bool { return len(name) >= 5 && strings.EqualFold(name[:5], "nats-") }

// join makes a subject; the topic may be empty.
func join(space, tenant, topic string) string {
	if topic == "" {
		return space + "." + tenant
	}
	return space + "." + tenant + "." + topic
}

// oneLine makes an error fit for a header.
func oneLine(err error) string {
	s := strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(err.Error(), "\uFFFD"))
	if len(s) > maxReason {
		s = strings.ToValidUTF8(s[:maxReason], "")
	}
	return s
}
