package broker

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"strconv"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"
)

// incarnationKey is the backlog stream's metadata that tells it from another stream
// of the same name: message ids that the broker numbers contain it.
const incarnationKey = "flowgate.incarnation"

// Assets is a topology that is there.
type Assets struct {
	// Incarnation tells this backlog stream from another of the same name. It is made
	// with the stream and never changes.
	Incarnation string
	Created     time.Time
	// LastSeq and Messages are the backlog stream's at the look.
	LastSeq, Messages uint64

	Backlog     jetstream.Stream
	Consumer    jetstream.Consumer
	DLQ         jetstream.Stream
	State       jetstream.KeyValue
	StateStream jetstream.Stream
	Limits      jetstream.KeyValue // nil without Topology.LimitsBucket
}

// Ensure makes the topology, or brings what is there in line with it. Everything is
// looked at before the first change: what cannot be changed safely, and a stream of
// anyone that captures the ingress subjects or the gateway's own, stops it with a
// MismatchError that names all of it.
//
// Limits may be set below what is stored: nothing is dropped, and the broker
// refuses more until the streams have drained. Several gateways may call it at the
// same time.
func Ensure(ctx context.Context, js jetstream.JetStream, t Topology) (Assets, error) {
	for attempt := 1; ; attempt++ {
		p, err := look(ctx, js, t)
		if err != nil {
			return Assets{}, err
		}
		a, err := p.apply(ctx, js)
		// Somebody made one of them after the look: look again, for it may differ.
		if attempt == 5 || !errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) {
			return a, err
		}
	}
}

// EnsureState makes the state bucket alone, if what is there allows for the rest: who
// starts first takes the lease in it before anything else is made.
func EnsureState(ctx context.Context, js jetstream.JetStream, t Topology) (jetstream.KeyValue, error) {
	if err := Check(ctx, js, t); err != nil {
		return nil, err
	}
	state := &part{want: t.bucket(t.StateBucket), bucket: t.StateBucket}
	if _, err := state.ensure(ctx, js, t); err != nil && !errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) {
		return nil, err
	}
	kv, err := js.KeyValue(ctx, t.StateBucket)
	if err != nil {
		return nil, fmt.Errorf("bucket %s: %w", t.StateBucket, err)
	}
	return kv, nil
}

// EnsureDeadLetters makes the stream of dead letters if somebody removed it.
func EnsureDeadLetters(ctx context.Context, js jetstream.JetStream, t Topology) (jetstream.Stream, error) {
	return (&part{want: t.deadLetters()}).ensure(ctx, js, t)
}

// Check is Ensure without the changes: nil if it would succeed.
func Check(ctx context.Context, js jetstream.JetStream, t Topology) error {
	_, err := look(ctx, js, t)
	return err
}

// part is one stream of the topology, or the one below a bucket.
type part struct {
	want   jetstream.StreamConfig
	bucket string                // empty: a plain stream
	have   *jetstream.StreamInfo // nil: to be made
}

// plan is what has to be done to get a topology.
type plan struct {
	topology                  Topology
	backlog, dead, state, lim *part // lim is nil without a limits bucket
	consumer                  *jetstream.ConsumerInfo
}

func (p *plan) parts() []*part {
	list := []*part{p.backlog, p.dead, p.state}
	if p.lim != nil {
		list = append(list, p.lim)
	}
	return list
}

// look checks what is there against t.
func look(ctx context.Context, js jetstream.JetStream, t Topology) (*plan, error) {
	p := &plan{
		topology: t,
		backlog:  &part{want: t.backlog()},
		dead:     &part{want: t.deadLetters()},
		state:    &part{want: t.bucket(t.StateBucket), bucket: t.StateBucket},
	}
	if t.LimitsBucket != "" {
		p.lim = &part{want: t.bucket(t.LimitsBucket), bucket: t.LimitsBucket}
	}
	holders, err := p.find(ctx, js)
	if err != nil {
		return nil, err
	}
	var list []Difference
	for _, part := range p.parts() {
		if part.have != nil {
			list = append(list, compareStream(part.want, part.have.Config)...)
		}
	}
	for _, h := range holders {
		if pattern := t.Ingress + ".>"; overlapAny(h.Subjects, pattern) {
			list = append(list, captures(h, pattern, "it and flowgate would both answer producers"))
		}
		for _, part := range p.parts() {
			if space := part.want.Subjects[0]; h.Stream != part.want.Name && p.part(h.Stream) == nil && overlapAny(h.Subjects, space) {
				list = append(list, captures(h, space, "they are this gateway's own"))
			}
		}
	}
	consumers, err := p.lookConsumers(ctx, js)
	if err != nil {
		return nil, err
	}
	if list = append(list, consumers...); len(list) > 0 {
		return nil, &MismatchError{list}
	}
	return p, nil
}

// find lists the account's streams, and notes which are ours.
func (p *plan) find(ctx context.Context, js jetstream.JetStream) ([]Holder, error) {
	var holders []Holder
	seen := map[string]bool{}
	infos := js.ListStreams(ctx)
	for info := range infos.Info() {
		name := info.Config.Name
		seen[name] = true
		holders = append(holders, Holder{name, info.Config.Subjects})
		if part := p.part(name); part != nil {
			part.have = info
		}
	}
	if err := infos.Err(); err != nil {
		return nil, fmt.Errorf("list the streams of the account: %w", unavailable(err))
	}
	// A stream that was made since is missing in that list, and in a cluster one
	// without a leader, which comes back.
	patterns := []string{p.topology.Ingress + ".>"}
	for _, part := range p.parts() {
		patterns = append(patterns, part.want.Subjects[0])
	}
	for _, pattern := range patterns {
		names := js.StreamNames(ctx, jetstream.WithStreamListSubject(pattern))
		for name := range names.Name() {
			if seen[name] {
				continue
			}
			seen[name] = true
			info, err := infoOf(ctx, js, name)
			part := p.part(name)
			switch {
			case errors.Is(err, jetstream.ErrStreamNotFound): // and deleted again
			case err == nil:
				holders = append(holders, Holder{name, info.Config.Subjects})
				if part != nil {
					part.have = info
				}
			case part != nil:
				return nil, fmt.Errorf("stream %s has no leader now; look at its replicas with `nats stream info %s`", name, name)
			default:
				holders = append(holders, Holder{name, []string{pattern}})
			}
		}
		if err := names.Err(); err != nil {
			return nil, fmt.Errorf("list the streams of %s: %w", pattern, err)
		}
	}
	return holders, nil
}

// infoOf asks a stream that may not answer.
func infoOf(ctx context.Context, js jetstream.JetStream, name string) (*jetstream.StreamInfo, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	s, err := js.Stream(ctx, name)
	if err != nil {
		return nil, err
	}
	return s.CachedInfo(), nil
}

func (p *plan) part(name string) *part {
	for _, part := range p.parts() {
		if part.want.Name == name {
			return part
		}
	}
	return nil
}

// apply makes what is missing and changes what differs.
func (p *plan) apply(ctx context.Context, js jetstream.JetStream) (a Assets, err error) {
	t := p.topology
	if a.Backlog, err = p.backlog.ensure(ctx, js, t); err != nil {
		return a, err
	}
	info := a.Backlog.CachedInfo()
	a.Incarnation, a.Created = info.Config.Metadata[incarnationKey], info.Created
	a.LastSeq, a.Messages = info.State.LastSeq, info.State.Msgs
	if a.Incarnation == "" {
		return a, fmt.Errorf("stream %s: the server did not keep its metadata %s", t.Stream, incarnationKey)
	}
	if a.Consumer, err = ensureConsumer(ctx, js, t, p.consumer); err != nil {
		return a, err
	}
	if a.DLQ, err = p.dead.ensure(ctx, js, t); err != nil {
		return a, err
	}
	if a.StateStream, err = p.state.ensure(ctx, js, t); err != nil {
		return a, err
	}
	if a.State, err = js.KeyValue(ctx, t.StateBucket); err != nil {
		return a, fmt.Errorf("bucket %s: %w", t.StateBucket, err)
	}
	if p.lim != nil {
		if _, err = p.lim.ensure(ctx, js, t); err != nil {
			return a, err
		}
		if a.Limits, err = js.KeyValue(ctx, t.LimitsBucket); err != nil {
			return a, fmt.Errorf("bucket %s: %w", t.LimitsBucket, err)
		}
	}
	return a, nil
}

// ensure makes the part, or updates what is there.
func (p *part) ensure(ctx context.Context, js jetstream.JetStream, t Topology) (jetstream.Stream, error) {
	var s jetstream.Stream
	var err error
	switch {
	case p.have != nil:
		merged := p.merged()
		if reflect.DeepEqual(merged, p.have.Config) {
			s, err = js.Stream(ctx, p.want.Name)
			break
		}
		s, err = js.UpdateStream(ctx, merged)
	case p.bucket != "":
		if _, err = js.CreateKeyValue(ctx, t.bucketConfig(p.bucket)); err == nil {
			s, err = js.Stream(ctx, p.want.Name)
		}
	default:
		want := p.want
		if want.Retention == jetstream.WorkQueuePolicy {
			want.Metadata = map[string]string{incarnationKey: nuid.Next()[14:]}
		}
		s, err = js.CreateStream(ctx, want)
	}
	if err != nil {
		return nil, fmt.Errorf("stream %s: %w", p.want.Name, explain(ctx, js, t, err))
	}
	return s, nil
}

// merged is what is there with our settings, and whatever else it has (placement,
// compression, others' metadata) left alone. With a stream that discards new messages
// the server keeps what is stored over a lowered limit, and a stream that discarded
// old ones is made to discard new ones before its limits are enforced.
func (p *part) merged() jetstream.StreamConfig {
	m, want := p.have.Config, p.want
	m.Discard, m.DiscardNewPerSubject = want.Discard, false
	m.MaxMsgs, m.MaxBytes, m.MaxAge, m.MaxMsgSize = want.MaxMsgs, want.MaxBytes, want.MaxAge, want.MaxMsgSize
	m.Replicas, m.AllowDirect, m.NoAck = want.Replicas, want.AllowDirect, false
	m.ConsumerLimits = jetstream.StreamConsumerLimits{}
	if p.bucket != "" {
		m.AllowRollup = true // a longer history harms nothing and is kept
		return m
	}
	m.MaxMsgsPerSubject = want.MaxMsgsPerSubject
	m.Description, m.Duplicates = want.Description, want.Duplicates
	if want.Retention == jetstream.WorkQueuePolicy && m.Metadata[incarnationKey] == "" {
		m.Metadata = maps.Clone(m.Metadata)
		if m.Metadata == nil {
			m.Metadata = map[string]string{}
		}
		// Two gateways that find none must agree on it, and an update has no condition;
		// the moment the stream was made is theirs in common.
		m.Metadata[incarnationKey] = strconv.FormatInt(p.have.Created.UnixNano(), 36)
	}
	return m
}
