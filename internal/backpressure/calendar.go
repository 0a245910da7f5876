package backpressure

import "time"

// calendar holds the slots that were promised. A slot is found by the key of the message
// it is for, or, of messages without an id, as the next one due of its owner; those whose
// time has passed are found through a wheel. Everything is O(1) amortized, and only a new
// slot may allocate.
//
// A slot takes 40 bytes: 32 in a slab, 8 in the table that finds it by its key; twice that
// right after they have grown. An empty calendar takes nothing.
type calendar struct {
	slab  []slot
	free  ref
	live  int
	table []ref // by key, open addressing; at least twice as long as the slab
	wheel [spokes]ref
	// passed is the step of the wheel up to which all is forgotten.
	passed int64
	// credits are, by owner, the slots without a key, in the order of their time.
	credits []chain
}

// slot is a place in time.
type slot struct {
	key        uint64 // 0: its owner's next message without an id
	at         int64
	owner      uint32
	next       ref // of its owner, without a key; or the next one free
	after, ere ref // in its spoke
}

// ref is a slot's index in the slab + 1; 0: none.
type ref uint32

type chain struct{ head, tail ref }

// The wheel turns a spoke each half second; slots lie less than a turn ahead.
const (
	spoke  = int64(time.Second / 2)
	spokes = 128
)

// step is the number of the spoke that an instant lies in, and turn its place on the wheel.
func step(at int64) int64  { return (at - (at%spoke+spoke)%spoke) / spoke }
func turn(step int64) uint { return uint(step) % spokes }

// maxSlots bounds the calendar to 10 MiB, or twice that while it grows; at 60 s ahead it is
// enough for 4,369 messages a second.
const maxSlots = 1 << 18

const leastSlab = 64

func (c *calendar) at(r ref) int64 { return c.slab[r-1].at }

// full reports whether no more slots are kept.
func (c *calendar) full() bool { return c.live >= maxSlots }

// find is the slot of a key or, with the key 0, the next one due of owner.
func (c *calendar) find(key uint64, owner uint32) ref {
	switch {
	case c.live == 0:
		return 0
	case key != 0:
		return c.table[c.place(key)]
	case int(owner) < len(c.credits):
		return c.credits[owner].head
	}
	return 0
}

// place is where the table has key, or would have it.
func (c *calendar) place(key uint64) int {
	mask := len(c.table) - 1
	for i := int(key) & mask; ; i = (i + 1) & mask {
		if r := c.table[i]; r == 0 || c.slab[r-1].key == key {
			return i
		}
	}
}

// add makes a slot and, without a key, not before its owner's last. A key must not have
// one. Right before, those whose time has passed must be taken out, see expired: a turn of
// the wheel is not much longer than the horizon and the grace.
func (c *calendar) add(key uint64, owner uint32, at int64) ref {
	if c.live == 0 {
		c.passed = step(at) - spokes + 1
	}
	r := c.free
	if r != 0 {
		c.free = c.slab[r-1].next
	} else {
		c.slab = append(c.slab, slot{})
		r = ref(len(c.slab))
		c.widen()
	}
	s := &c.slab[r-1]
	*s = slot{key: key, owner: owner, at: at}
	c.live++
	first := &c.wheel[turn(step(at))]
	if s.after = *first; s.after != 0 {
		c.slab[s.after-1].ere = r
	}
	*first = r
	if key != 0 {
		c.table[c.place(key)] = r
		return r
	}
	for int(owner) >= len(c.credits) {
		c.credits = append(c.credits, chain{})
	}
	if q := &c.credits[owner]; q.head == 0 {
		q.head, q.tail = r, r
	} else {
		c.slab[q.tail-1].next = r
		q.tail = r
	}
	return r
}

// widen keeps the table twice as long as the slab.
func (c *calendar) widen() {
	if 2*len(c.slab) <= len(c.table) {
		return
	}
	c.table = make([]ref, max(2*leastSlab, 2*len(c.table)))
	for i := range c.slab {
		if key := c.slab[i].key; key != 0 {
			c.table[c.place(key)] = ref(i + 1)
		}
	}
}

// remove takes a slot out. Of those without a key it is the owner's first or last.
func (c *calendar) remove(r ref) {
	s := &c.slab[r-1]
	if s.key != 0 {
		c.unlist(s.key)
	} else {
		c.unchain(r)
	}
	if s.ere != 0 {
		c.slab[s.ere-1].after = s.after
	} else {
		c.wheel[turn(step(s.at))] = s.after
	}
	if s.after != 0 {
		c.slab[s.after-1].ere = s.ere
	}
	*s = slot{next: c.free}
	c.free = r
	if c.live--; c.live == 0 && len(c.slab) > leastSlab {
		*c = calendar{passed: c.passed} // a time of pressure is over
	}
}

func (c *calendar) unchain(r ref) {
	q := &c.credits[c.slab[r-1].owner]
	switch {
	case q.head == q.tail:
		*q = chain{}
	case q.head == r:
		q.head = c.slab[r-1].next
	default: // the last: what was just promised is taken back
		before := q.head
		for c.slab[before-1].next != r {
			before = c.slab[before-1].next
		}
		c.slab[before-1].next, q.tail = 0, before
	}
}

// expired takes out one slot whose time lies before the instant by a spoke or more, and
// tells its owner.
func (c *calendar) expired(before int64) (owner uint32, ok bool) {
	end := step(before) // this spoke is not over
	for ; c.live > 0 && c.passed < end; c.passed++ {
		if r := c.wheel[turn(c.passed)]; r != 0 {
			// Of several of an owner without a key the first is due first.
			owner = c.slab[r-1].owner
			if c.slab[r-1].key == 0 {
				r = c.credits[owner].head
			}
			c.remove(r)
			return owner, true
		}
	}
	c.passed = max(c.passed, end)
	return 0, false
}

// unlist takes a key out of the table and closes the gap.
func (c *calendar) unlist(key uint64) {
	mask := len(c.table) - 1
	hole := c.place(key)
	for i := (hole + 1) & mask; c.table[i] != 0; i = (i + 1) & mask {
		home := int(c.slab[c.table[i]-1].key) & mask
		if (i-home)&mask >= (i-hole)&mask {
			c.table[hole] = c.table[i]
			hole = i
		}
	}
	c.table[hole] = 0
}
