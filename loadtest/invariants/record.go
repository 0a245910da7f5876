package invariants

import (
	"cmp"
	"slices"
	"sync"
)

// Record is all that was seen of a run from outside. Instants are Unix nanoseconds.
// Producers and the database write to it at once; who reads it does so when they are done.
type Record struct {
	mu         sync.Mutex
	Messages   []Message
	Tries      []Try
	Deliveries []Arrived
	// DeadLetters are the ids that stand in the dead-letter stream, and Waiting is how many
	// messages were in the backlog, at the end.
	DeadLetters map[string]bool
	Waiting     uint64
	// Gaps are when no gateway or no broker was there.
	Gaps []Gap
}

// Message is one that a producer had to send.
type Message struct {
	ID     string // as the database knows it
	Tenant string
	Due    int64 // by the schedule
}

// Try is one publish of a message.
type Try struct {
	Message  int   // its place among the messages
	Due      int64 // by the schedule, or by what it was told to wait
	Sent     int64 // when the client was called
	Answered int64
	// Told is what the answer said: Acked, a NAK's reason, NoAnswer, Nobody, or NotAsked.
	Told string
}

// What a try was told beside a NAK's reasons.
const (
	Acked    = "acknowledged"
	NoAnswer = "no answer"
	Nobody   = "nobody there" // no responders, or the connection was away
	NotAsked = "not asked"    // published without a reply subject
)

// Arrived is one delivery as the database saw it.
type Arrived struct {
	ID, Tenant string
	Seq        uint64
	Attempt    int
	Process    int   // of the gateway that made it
	Admitted   int64 // when the broker stored it
	Released   int64 // the departure clock's reading
	Started    int64
	Ended      int64
	Done       bool // the database has it
	Altered    bool // the payload is not what was sent
	// Unheard: the gateway had given up, or was gone, before it could be told of the end.
	Unheard bool
}

// Gap is a time in which no gateway or no broker was there. Killed says that it began with a
// SIGKILL; To is 0 if it lasted.
type Gap struct {
	From, To int64
	Killed   bool
}

// Send notes that a message is there to be sent, and returns its place.
func (r *Record) Send(m Message) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.Messages = append(r.Messages, m)
	return len(r.Messages) - 1
}

// Tell notes a try and what came of it.
func (r *Record) Tell(t Try) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.Tries = append(r.Tries, t)
}

// Arrive notes a delivery.
func (r *Record) Arrive(a Arrived) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.Deliveries = append(r.Deliveries, a)
}

// Open begins a gap, and Close ends it.
func (r *Record) Open(at int64, killed bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.Gaps = append(r.Gaps, Gap{From: at, Killed: killed})
}

// Close ends all gaps that are open.
func (r *Record) Close(at int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range r.Gaps {
		if r.Gaps[i].To == 0 {
			r.Gaps[i].To = at
		}
	}
}

// Done is how many deliveries the database has taken so far.
func (r *Record) Done() (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, d := range r.Deliveries {
		if d.Done {
			n++
		}
	}
	return n
}

// inOrder are the deliveries by a time of theirs.
func (r *Record) inOrder(at func(Arrived) int64) []Arrived {
	sorted := slices.Clone(r.Deliveries)
	slices.SortStableFunc(sorted, func(a, b Arrived) int {
		return cmp.Or(cmp.Compare(at(a), at(b)), cmp.Compare(a.Seq, b.Seq))
	})
	return sorted
}

// acknowledged are the messages with a PubAck, by id, with the time of the first.
func (r *Record) acknowledged() map[string]int64 {
	acked := map[string]int64{}
	for _, t := range r.Tries {
		id := r.Messages[t.Message].ID
		if at, ok := acked[id]; t.Told == Acked && (!ok || t.Answered < at) {
			acked[id] = t.Answered
		}
	}
	return acked
}

// delivered are the messages that the database has, by id, with the time of the first.
func (r *Record) delivered() map[string]int64 {
	done := map[string]int64{}
	for _, d := range r.Deliveries {
		if at, ok := done[d.ID]; d.Done && (!ok || d.Ended < at) {
			done[d.ID] = d.Ended
		}
	}
	return done
}

// Since makes all instants those since another one.
func (r *Record) Since(began int64) {
	for i := range r.Messages {
		r.Messages[i].Due -= began
	}
	for i := range r.Tries {
		t := &r.Tries[i]
		t.Due, t.Sent, t.Answered = t.Due-began, t.Sent-began, t.Answered-began
	}
	for i := range r.Deliveries {
		d := &r.Deliveries[i]
		d.Admitted, d.Released, d.Started, d.Ended = d.Admitted-began, d.Released-began, d.Started-began, d.Ended-began
	}
	for i := range r.Gaps {
		r.Gaps[i].From, r.Gaps[i].To = r.Gaps[i].From-began, r.Gaps[i].To-began
	}
}
