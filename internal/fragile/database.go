package fragile

import (
	"container/heap"
	"errors"
	"math"
	"math/rand/v2"
)

// Errors of statements.
var (
	// ErrDown refuses what starts while it is down.
	ErrDown = errors.New("the database is down")
	// ErrCrashed fails what was in flight when it went down.
	ErrCrashed = errors.New("the database went down during the statement")
)

// Outcome is the end of a statement.
type Outcome struct {
	ID  uint64
	At  int64 // ns
	Err error // nil: done
}

// Database is one fragile database. Instants are nanoseconds of any clock that does not
// go back; an earlier one than before counts as the same. Not safe for concurrent use.
type Database struct {
	cfg    Config
	random *rand.Rand
	now    int64

	// Work is measured in nanoseconds of a statement that is alone. All in flight do the
	// same amount in the same time, so each ends when the sum of what one has done since
	// the beginning reaches its own mark. The sum is kept as of the last change of their
	// number, so that looking in between changes no digit.
	worked  float64
	changed int64
	running statements
	byID    map[uint64]*statement
	last    uint64

	overSince int64 // more than the knee in flight since then; none if overKnee is not set
	overKnee  bool
	down      bool
	halted    bool  // down until Return
	upAt      int64 // the end of a crash, and of the last one
	wasDown   bool  // ever
	ended     []Outcome
	counts    Counts
}

// Counts are what it has done since the beginning.
type Counts struct {
	Done, Failed, Refused, Crashes uint64
}

type statement struct {
	id    uint64
	mark  float64
	place int
}

// New makes one that is up and warm.
func New(cfg Config) (*Database, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	return &Database{cfg: cfg, random: rand.New(rand.NewPCG(cfg.Seed, 0)), now: math.MinInt64, byID: map[uint64]*statement{}}, nil
}

// Start begins a statement, or refuses it with ErrDown, or ErrCrashed if it was the one
// too many.
func (d *Database) Start(now int64) (id uint64, err error) {
	d.advance(now)
	if d.down {
		d.counts.Refused++
		return 0, ErrDown
	}
	if d.cfg.CrashAt > 0 && len(d.running)+1 >= d.cfg.CrashAt {
		d.crash()
		d.counts.Failed++
		return 0, ErrCrashed
	}
	d.account()
	d.last++
	s := &statement{id: d.last, mark: d.worked + d.work()}
	heap.Push(&d.running, s)
	d.byID[s.id] = s
	d.watchKnee()
	return s.id, nil
}

// work draws that of a statement that starts now.
func (d *Database) work() float64 {
	work := float64(d.cfg.Latency) * d.coldness()
	if d.cfg.Noise > 0 { // lognormal: never below 0, and with a tail as latencies have
		variance := math.Log(1 + d.cfg.Noise*d.cfg.Noise)
		work *= math.Exp(math.Sqrt(variance)*d.random.NormFloat64() - variance/2)
	}
	return work
}

// coldness is how many times as long a statement takes that starts now.
func (d *Database) coldness() float64 {
	if !d.wasDown || d.cfg.Warmup == 0 {
		return 1
	}
	left := 1 - float64(d.now-d.upAt)/float64(d.cfg.Warmup)
	return 1 + (d.cfg.Cold-1)*max(0, left)
}

// Cancel ends a statement whose caller has gone; one that has ended already stays so.
func (d *Database) Cancel(now int64, id uint64) {
	d.advance(now)
	if s := d.byID[id]; s != nil {
		d.account()
		heap.Remove(&d.running, s.place)
		delete(d.byID, id)
		d.watchKnee()
	}
}

// Halt takes it down until Return, as an operator or a broken machine does.
func (d *Database) Halt(now int64) {
	d.advance(now)
	if !d.down {
		d.fall()
	}
	d.halted = true
}

// Return ends a Halt or a crash: it is up, and cold.
func (d *Database) Return(now int64) {
	d.advance(now)
	if d.down {
		d.down, d.halted, d.upAt = false, false, d.now
	}
}

// Advance gives what ended up to now, in order of time, and forgets it.
func (d *Database) Advance(now int64) []Outcome {
	d.advance(now)
	ended := d.ended
	d.ended = nil
	return ended
}

// Next is when something happens next if nobody calls; ok is false if nothing does.
func (d *Database) Next() (at int64, ok bool) {
	switch {
	case len(d.ended) > 0:
		return d.now, true
	case d.down:
		return d.upAt, !d.halted
	case len(d.running) == 0:
		return 0, false
	}
	at = d.endOf(d.running[0])
	if d.overKnee && d.cfg.CrashAfter > 0 {
		at = min(at, d.overSince+int64(d.cfg.CrashAfter))
	}
	return at, true
}

// speed is that of each of n in flight.
func (d *Database) speed(n int) float64 {
	if n <= d.cfg.Knee {
		return 1
	}
	return math.Pow(float64(d.cfg.Knee)/float64(n), 1+d.cfg.Thrash)
}

// endOf is when a statement ends if nothing else starts or ends before.
func (d *Database) endOf(s *statement) int64 {
	// A thousandth of a nanosecond is what the sums are off by, no work to be done.
	wait := math.Ceil((s.mark-d.worked)/d.speed(len(d.running)) - 1e-3)
	return max(d.now, d.changed+int64(min(wait, 1<<61)))
}

// account adds up what was done up to now, before the number in flight changes.
func (d *Database) account() {
	if len(d.running) > 0 {
		d.worked += float64(d.now-d.changed) * d.speed(len(d.running))
	}
	d.changed = d.now
}

// advance follows what happens by itself up to now.
func (d *Database) advance(now int64) {
	now = max(now, d.now)
	for {
		if d.down {
			if d.halted || d.upAt > now {
				break
			}
			d.down, d.now = false, d.upAt
		}
		if len(d.running) == 0 {
			break
		}
		first := d.running[0]
		at := d.endOf(first)
		if d.overKnee && d.cfg.CrashAfter > 0 {
			if crash := d.overSince + int64(d.cfg.CrashAfter); crash < at && crash <= now {
				d.now = crash
				d.crash()
				continue
			}
		}
		if at > now {
			break
		}
		d.now = at
		d.account()
		d.worked = max(d.worked, first.mark)
		heap.Pop(&d.running)
		delete(d.byID, first.id)
		d.counts.Done++
		d.ended = append(d.ended, Outcome{first.id, at, nil})
		d.watchKnee()
	}
	d.now = now
}

func (d *Database) watchKnee() {
	over := len(d.running) > d.cfg.Knee
	if over && !d.overKnee {
		d.overSince = d.now
	}
	d.overKnee = over
}

// crash takes it down for the time of a recovery.
func (d *Database) crash() {
	d.counts.Crashes++
	d.fall()
	d.upAt = d.now + int64(d.cfg.Recovery)
}

// fall fails all in flight, in the order in which they started.
func (d *Database) fall() {
	d.down, d.wasDown, d.overKnee = true, true, false
	for id := range d.byID {
		d.ended = append(d.ended, Outcome{id, d.now, ErrCrashed})
	}
	sortByID(d.ended[len(d.ended)-len(d.byID):])
	d.counts.Failed += uint64(len(d.byID))
	d.running = nil
	clear(d.byID)
}
