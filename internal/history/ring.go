package history

import "sync"

// Ring keeps the last samples. Safe for concurrent use.
type Ring struct {
	most int

	mu      sync.Mutex
	samples []Sample // grows up to most
	next    int      // where the oldest is, once there are so many
}

// NewRing makes one for so many samples.
func NewRing(most int) *Ring { return &Ring{most: most} }

// Add keeps a sample and forgets the oldest if there is no room. What it points to must
// not be changed any more.
func (r *Ring) Add(s Sample) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.samples) < r.most {
		r.samples = append(r.samples, s)
		return
	}
	r.samples[r.next] = s
	r.next = (r.next + 1) % r.most
}

// All are the samples, oldest first.
func (r *Ring) All() []Sample {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := make([]Sample, 0, len(r.samples))
	return append(append(all, r.samples[r.next:]...), r.samples[:r.next]...)
}

// Newest is the last sample; ok is false before the first.
func (r *Ring) Newest() (s Sample, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.samples) == 0 {
		return Sample{}, false
	}
	return r.samples[(r.next+len(r.samples)-1)%len(r.samples)], true
}
