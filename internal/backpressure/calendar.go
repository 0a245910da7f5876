package backpressure

import "math"

// calendar holds the slots that were promised, in the order of their time. A slot is
// found by the key of the message it is for, or, of messages without an id, as the next
// one due of its owner. Everything is O(1) amortized; only a new slot may allocate.
//
// A slot takes 32 bytes: 24 in a ring, 8 in the table that finds it by its key; twice that
// right after the ring has grown. An empty calendar takes nothing.
type calendar struct {
	ring  []slot // its length is a power of two
	first int    // the oldest
	n     int    // slots in the ring, those that are gone included
	live  int
	table []ref // by key, open addressing; twice as long as the ring
	// credits are, by owner, the slots without a key.
	credits []chain
	// paid is the instant up to which places were taken without a slot.
	paid int64
}

// slot is a place in time. One with the owner nobody is gone.
type slot struct {
	key   uint64 // 0: its owner's next message without an id
	at    int64
	owner uint32
	next  ref // of its owner, without a key
}

const nobody = math.MaxUint32

// ref is a slot's index in the ring + 1; 0: none.
type ref uint32

type chain struct{ head, tail ref }

// maxSlots bounds the calendar to 8 MiB; at 60 s ahead it is enough for 4,369 messages a
// second.
const maxSlots = 1 << 18

const leastRing = 64

func (c *calendar) at(r ref) int64 { return c.ring[r-1].at }

// newest is the instant of the last place given, with a slot or without.
func (c *calendar) newest() int64 {
	if c.n == 0 {
		return c.paid
	}
	return max(c.paid, c.ring[c.index(c.n-1)].at)
}

// next is when the next place is free, if places are gap apart.
func (c *calendar) next(gap int64) int64 { return c.newest() + gap }

// pay notes that a place was taken at the instant now.
func (c *calendar) pay(now int64) { c.paid = max(c.paid, now) }

func (c *calendar) index(i int) int { return (c.first + i) & (len(c.ring) - 1) }

// full reports whether no more slots are kept.
func (c *calendar) full() bool { return c.live >= maxSlots }

// find is the slot of a key or, with the key 0, the next one due of owner.
func (c *calendar) find(key uint64, owner uint32) ref {
	if c.live == 0 {
		return 0
	}
	if key == 0 {
		if int(owner) >= len(c.credits) {
			return 0
		}
		return c.credits[owner].head
	}
	return c.table[c.place(key)]
}

// place is where the table has key, or would have it.
func (c *calendar) place(key uint64) int {
	mask := len(c.table) - 1
	for i := int(key) & mask; ; i = (i + 1) & mask {
		if r := c.table[i]; r == 0 || c.ring[r-1].key == key {
			return i
		}
	}
}

// add makes a slot at an instant, not before the newest one's. A key must not have one.
func (c *calendar) add(key uint64, owner uint32, at int64) ref {
	if c.n == len(c.ring) {
		c.grow()
	}
	if c.n > 0 {
		at = max(at, c.ring[c.index(c.n-1)].at)
	}
	return c.put(slot{key: key, owner: owner, at: at})
}

// put appends a slot that is live.
func (c *calendar) put(s slot) ref {
	i := c.index(c.n)
	c.n++
	c.live++
	r := ref(i + 1)
	s.next = 0
	c.ring[i] = s
	if s.key != 0 {
		c.table[c.place(s.key)] = r
		return r
	}
	for int(s.owner) >= len(c.credits) {
		c.credits = append(c.credits, chain{})
	}
	if q := &c.credits[s.owner]; q.head == 0 {
		q.head, q.tail = r, r
	} else {
		c.ring[q.tail-1].next = r
		q.tail = r
	}
	return r
}

// grow makes room for one more: the gone are left out, and if few are, the ring is doubled.
func (c *calendar) grow() {
	size := max(leastRing, len(c.ring))
	if c.live > size/2 {
		size *= 2
	}
	old := *c
	c.ring, c.table = make([]slot, size), make([]ref, 2*size)
	c.first, c.n, c.live = 0, 0, 0
	clear(c.credits)
	for i := range old.n {
		if s := old.ring[old.index(i)]; s.owner != nobody {
			c.put(s)
		}
	}
}

// remove takes a slot out; of those without a key it must be its owner's next.
func (c *calendar) remove(r ref) {
	s := &c.ring[r-1]
	if s.key != 0 {
		c.unlist(s.key)
	} else if q := &c.credits[s.owner]; q.head == q.tail {
		*q = chain{}
	} else {
		q.head = s.next
	}
	s.owner, s.key = nobody, 0
	c.live--
	c.trim()
}

// withdraw takes the newest slot out, which add has just made.
func (c *calendar) withdraw(r ref) {
	s := &c.ring[r-1]
	if s.key != 0 {
		c.remove(r)
		return
	}
	// The last of its chain; rare enough to walk it.
	q := &c.credits[s.owner]
	if q.head == r {
		*q = chain{}
	} else {
		before := q.head
		for c.ring[before-1].next != r {
			before = c.ring[before-1].next
		}
		c.ring[before-1].next, q.tail = 0, before
	}
	s.owner = nobody
	c.live--
	c.trim()
}

// trim forgets those that are gone at both ends.
func (c *calendar) trim() {
	for c.n > 0 && c.ring[c.first].owner == nobody {
		c.first = c.index(1)
		c.n--
	}
	for c.n > 0 && c.ring[c.index(c.n-1)].owner == nobody {
		c.n--
	}
	if c.n == 0 && len(c.ring) > leastRing {
		c.ring, c.table, c.credits, c.first = nil, nil, nil, 0 // a time of pressure is over
	}
}

// expired takes out one slot whose instant lies before the one given, and tells its owner.
func (c *calendar) expired(before int64) (owner uint32, ok bool) {
	if c.n == 0 || c.ring[c.first].at >= before {
		return 0, false
	}
	owner = c.ring[c.first].owner // the oldest is never gone
	c.remove(ref(c.first + 1))
	return owner, true
}

// unlist takes a key out of the table and closes the gap.
func (c *calendar) unlist(key uint64) {
	mask := len(c.table) - 1
	hole := c.place(key)
	for i := (hole + 1) & mask; c.table[i] != 0; i = (i + 1) & mask {
		home := int(c.ring[c.table[i]-1].key) & mask
		if (i-home)&mask >= (i-hole)&mask {
			c.table[hole] = c.table[i]
			hole = i
		}
	}
	c.table[hole] = 0
}
