package consumers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// DeadLetter is what is known of a dead letter without its content.
type DeadLetter struct {
	// Seq is its sequence in the dead-letter stream, MessageSeq the message's own in
	// the backlog stream.
	Seq        uint64
	ID         string
	Tenant     string
	Topic      string
	Class      ErrorClass
	Error      string
	Attempts   int
	MessageSeq uint64
	AdmittedAt time.Time // zero: it does not say
	DiedAt     time.Time
	// Bytes is the size of its payload.
	Bytes int
}

// DeadLetterContent is a dead letter with the producer's headers and payload.
type DeadLetterContent struct {
	DeadLetter
	Headers map[string][]string
	Payload []byte
}

// ErrNoDeadLetter means that no dead letter has that sequence, or no longer.
var ErrNoDeadLetter = errors.New("no such dead letter")

// GraveyardDeps are what a Graveyard works with.
type GraveyardDeps struct {
	JS jetstream.JetStream
	// Stream holds the dead letters, below Subjects.
	Stream, Subjects string
	// BacklogStream holds the backlog, below Backlog.
	BacklogStream, Backlog string
	// Room reports whether the backlog has room for one that is replayed; it may have
	// none for any length of time.
	Room func() bool
	// Replayed is told of each that entered the backlog: its sequence there, and its
	// bytes.
	Replayed func(seq uint64, bytes int)
	// TenantLabel bounds the tenants that metrics name; nil names all.
	TenantLabel func(string) string
	Registerer  prometheus.Registerer
}

// Graveyard is where operators look for dead letters, raise them and remove them. It
// reads the stream as it goes, so that a million cost no more memory than a page.
type Graveyard struct {
	deps GraveyardDeps
	// raising lets one be replayed at a time: who comes second finds it gone.
	raising  sync.Mutex
	replayed *prometheus.CounterVec
	purged   prometheus.Counter
}

// NewGraveyard makes one; it holds nothing and starts nothing.
func NewGraveyard(deps GraveyardDeps) *Graveyard {
	if deps.TenantLabel == nil {
		deps.TenantLabel = func(t string) string { return t }
	}
	f := promauto.With(deps.Registerer)
	return &Graveyard{
		deps: deps,
		replayed: f.NewCounterVec(prometheus.CounterOpts{
			Name: "flowgate_dead_letters_replayed_total",
			Help: "Dead letters that were put back into the backlog.",
		}, []string{"tenant"}),
		purged: f.NewCounter(prometheus.CounterOpts{
			Name: "flowgate_dead_letters_purged_total",
			Help: "Dead letters that an operator deleted.",
		}),
	}
}

// Count is how many dead letters there are.
func (y *Graveyard) Count(ctx context.Context) (uint64, error) {
	s, err := y.stream(ctx)
	if err != nil {
		return 0, err
	}
	return s.CachedInfo().State.Msgs, nil
}

func (y *Graveyard) stream(ctx context.Context) (jetstream.Stream, error) {
	s, err := y.deps.JS.Stream(ctx, y.deps.Stream)
	if err != nil {
		return nil, fmt.Errorf("dead-letter stream %s: %w", y.deps.Stream, err)
	}
	return s, nil
}

// Get reads one; ErrNoDeadLetter if there is none of that sequence.
func (y *Graveyard) Get(ctx context.Context, seq uint64) (DeadLetterContent, error) {
	s, err := y.stream(ctx)
	if err != nil {
		return DeadLetterContent{}, err
	}
	m, err := get(ctx, s, seq)
	if err != nil {
		return DeadLetterContent{}, err
	}
	d := y.read(m.Subject, m.Sequence, m.Time, m.Header)
	d.Bytes = len(m.Data)
	return DeadLetterContent{DeadLetter: d, Headers: producers(m.Header), Payload: m.Data}, nil
}

func get(ctx context.Context, s jetstream.Stream, seq uint64) (*jetstream.RawStreamMsg, error) {
	m, err := s.GetMsg(ctx, seq)
	if errors.Is(err, jetstream.ErrMsgNotFound) || seq == 0 {
		return nil, fmt.Errorf("%w: %d; it may have been replayed or purged", ErrNoDeadLetter, seq)
	}
	if err != nil {
		return nil, fmt.Errorf("read dead letter %d: %w", seq, err)
	}
	return m, nil
}

// read makes out what a dead letter says of itself. What somebody else wrote there may
// say anything.
func (y *Graveyard) read(subject string, seq uint64, at time.Time, h nats.Header) DeadLetter {
	tail, _ := strings.CutPrefix(subject, y.deps.Subjects+".")
	d := DeadLetter{Seq: seq, ID: h.Get(IDHeader), Class: ErrorClass(h.Get(classHeader)), Error: h.Get(errorHeader), DiedAt: at.UTC()}
	d.Tenant, d.Topic, _ = strings.Cut(tail, ".")
	d.Attempts, _ = strconv.Atoi(h.Get(attemptsHeader))
	d.MessageSeq, _ = strconv.ParseUint(h.Get(seqHeader), 10, 64)
	d.AdmittedAt, _ = time.Parse(time.RFC3339Nano, h.Get(admittedHeader))
	if !slices.Contains(ErrorClasses(), d.Class) {
		d.Class = ClassUnknown
	}
	return d
}

// ours are the headers that a dead letter got from us.
var ours = []string{IDHeader, tenantHeader, topicHeader, seqHeader, attemptsHeader, admittedHeader, errorHeader, classHeader}

// producers takes our headers and the broker's off those of a dead letter.
func producers(h nats.Header) map[string][]string {
	own := map[string][]string{}
	for name, values := range h {
		if !brokers(name) && !slices.Contains(ours, name) {
			own[name] = values
		}
	}
	return own
}

// Delete removes one; ErrNoDeadLetter if there is none of that sequence.
func (y *Graveyard) Delete(ctx context.Context, seq uint64) error {
	s, err := y.stream(ctx)
	if err != nil {
		return err
	}
	if _, err := get(ctx, s, seq); err != nil {
		return err
	}
	if err := remove(ctx, s, seq); err != nil {
		return err
	}
	y.purged.Inc()
	return nil
}

// remove deletes one if it is still there.
func remove(ctx context.Context, s jetstream.Stream, seq uint64) error {
	err := s.DeleteMsg(ctx, seq)
	if err == nil {
		return nil
	}
	if _, gone := get(ctx, s, seq); errors.Is(gone, ErrNoDeadLetter) {
		return nil
	}
	return fmt.Errorf("delete dead letter %d: %w", seq, err)
}

// Progress is how far a change of many came.
type Progress struct {
	// Count is how many were changed, Skipped how many cannot be, of which Why tells
	// the first.
	Count, Skipped uint64
	Why            error
	// Next selects what is left; nil: nothing.
	Next *DeadLetterFilter
	// Waiting says that the time ended while the backlog had no room.
	Waiting bool
}

// Purge removes what f selects until the instant; a zero one is never. An error may
// come with progress.
func (y *Graveyard) Purge(ctx context.Context, f DeadLetterFilter, until time.Time) (Progress, error) {
	if f.Class == "" && f.After.IsZero() && f.Before.IsZero() && f.From <= 1 {
		return y.purgeAtOnce(ctx, f)
	}
	s, err := y.stream(ctx)
	if err != nil {
		return Progress{}, err
	}
	return y.sweep(ctx, f, until, func(d DeadLetter) (bool, error) {
		if err := remove(ctx, s, d.Seq); err != nil {
			return false, err
		}
		y.purged.Inc()
		return true, nil
	})
}

// purgeAtOnce has the broker delete what it can select itself.
func (y *Graveyard) purgeAtOnce(ctx context.Context, f DeadLetterFilter) (p Progress, err error) {
	subjects := y.subjects(f.Tenant)
	if len(subjects) == 0 {
		subjects = []string{""}
	}
	for _, subject := range subjects {
		request := jetstream.StreamPurgeRequest{Subject: subject}
		if f.To != 0 {
			request.Sequence = f.To + 1 // up to it, not with it
		}
		n, err := y.askPurge(ctx, request)
		if err != nil {
			return p, fmt.Errorf("purge dead letters: %w", err)
		}
		p.Count += n
		y.purged.Add(float64(n))
	}
	return p, nil
}

// askPurge is the library's Purge, which does not tell how many there were.
func (y *Graveyard) askPurge(ctx context.Context, request jetstream.StreamPurgeRequest) (uint64, error) {
	body, err := json.Marshal(request)
	if err != nil {
		return 0, err
	}
	answer, err := y.deps.JS.Conn().RequestWithContext(ctx, jetstream.DefaultAPIPrefix+"STREAM.PURGE."+y.deps.Stream, body)
	if err != nil {
		return 0, err
	}
	var result struct {
		Error  *jetstream.APIError `json:"error"`
		Purged uint64              `json:"purged"`
	}
	if err := json.Unmarshal(answer.Data, &result); err != nil {
		return 0, err
	}
	if result.Error != nil {
		return 0, result.Error
	}
	return result.Purged, nil
}
