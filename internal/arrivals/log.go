package arrivals

import (
	"hash/maphash"
	"sync"
	"time"
)

// Log is a recording that is being made, in bounded memory: what nobody takes in time is
// counted and not kept. Safe for concurrent use.
type Log struct {
	began int64
	seed  maphash.Seed
	news  chan struct{}

	mu      sync.Mutex
	text    []byte
	missing uint64
	recent  [2]map[uint64]struct{} // messages with an id, the younger generation first
	turned  int64
}

const (
	// logBytes is what waits to be taken at most: 100,000 tries, about.
	logBytes = 4 << 20
	// remembered is for how long at least a message is known again, unless there are more
	// than mostRemembered a generation.
	remembered     = time.Minute
	mostRemembered = 1 << 18
)

// NewLog begins one at the instant now, in nanoseconds.
func NewLog(now int64) *Log {
	return &Log{
		began: now, seed: maphash.MakeSeed(), news: make(chan struct{}, 1), text: AppendHead(nil), turned: now,
		recent: [2]map[uint64]struct{}{{}, {}},
	}
}

// Add notes a try that came at an instant; id is empty without one, and not kept.
func (l *Log) Add(at int64, tenant, topic, id string, bytes int) {
	var h maphash.Hash
	if id != "" {
		h.SetSeed(l.seed)
		_, _ = h.WriteString(tenant)
		_ = h.WriteByte('/')
		_, _ = h.WriteString(id)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	again := id != "" && l.again(at, h.Sum64())
	if len(l.text) > logBytes {
		l.missing++
		return
	}
	if l.missing > 0 {
		l.text = AppendMissing(l.text, l.missing)
		l.missing = 0
	}
	l.text = AppendTry(l.text, Try{Arrival{max(0, time.Duration(at-l.began)), tenant, topic, bytes}, again, id != ""})
	if len(l.text) > logBytes/2 {
		select {
		case l.news <- struct{}{}:
		default:
		}
	}
}

// again reports whether a message came before, and remembers it.
func (l *Log) again(at int64, message uint64) bool {
	if at-l.turned >= int64(remembered) || len(l.recent[0]) >= mostRemembered {
		l.recent[0], l.recent[1] = map[uint64]struct{}{}, l.recent[0]
		l.turned = at
	}
	_, young := l.recent[0][message]
	_, old := l.recent[1][message]
	l.recent[0][message] = struct{}{}
	return young || old
}

// Full tells that it should be taken soon.
func (l *Log) Full() <-chan struct{} { return l.news }

// Take gives what was noted since the last time, in whole lines up to the instant now, and
// takes spare, which is no longer needed, for what comes next.
func (l *Log) Take(now int64, spare []byte) []byte {
	l.mu.Lock()
	defer l.mu.Unlock()
	text := l.text
	if l.missing > 0 {
		text = AppendMissing(text, l.missing)
		l.missing = 0
	}
	l.text = spare[:0]
	return AppendUntil(text, max(0, time.Duration(now-l.began)))
}
