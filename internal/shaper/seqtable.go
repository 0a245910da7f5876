package shaper

import "math/bits"

// seqTable finds messages by their sequence: open addressing with linear probing
// over their names alone, 5 to 9 bytes a message where a map takes 26. The sequences
// stand in the messages.
type seqTable struct {
	slots []ref // a power of two
	used  int
	shift uint8
}

const leastSlots = 64

// home is where a sequence belongs: neighbours are spread (Fibonacci hashing).
func (t *seqTable) home(seq uint64) int {
	return int((seq * 0x9e3779b97f4a7c15) >> t.shift)
}

// find is the message of a sequence; 0 if there is none.
func (t *seqTable) find(s *slab, seq uint64) ref {
	if t.used == 0 {
		return 0
	}
	for i := t.home(seq); ; i = (i + 1) & (len(t.slots) - 1) {
		if r := t.slots[i]; r == 0 || s.at(r).seq == seq {
			return r
		}
	}
}

// add takes in a message whose sequence is not there.
func (t *seqTable) add(s *slab, r ref) {
	if t.used >= len(t.slots)*7/8 {
		t.resize(s, max(leastSlots, 2*len(t.slots)))
	}
	t.place(s, r)
	t.used++
}

func (t *seqTable) place(s *slab, r ref) {
	i := t.home(s.at(r).seq)
	for t.slots[i] != 0 {
		i = (i + 1) & (len(t.slots) - 1)
	}
	t.slots[i] = r
}

// remove takes out a sequence that is there; those behind it move up.
func (t *seqTable) remove(s *slab, seq uint64) {
	mask := len(t.slots) - 1
	i := t.home(seq)
	for s.at(t.slots[i]).seq != seq {
		i = (i + 1) & mask
	}
	for j := i; ; {
		j = (j + 1) & mask
		r := t.slots[j]
		if r == 0 {
			break
		}
		// r may move to i unless its home lies between the two.
		if home := t.home(s.at(r).seq); (j-home)&mask >= (j-i)&mask {
			t.slots[i], i = r, j
		}
	}
	t.slots[i] = 0
	t.used--
	if len(t.slots) > leastSlots && t.used < len(t.slots)/8 {
		t.resize(s, len(t.slots)/4)
	}
}

func (t *seqTable) resize(s *slab, n int) {
	old := t.slots
	t.slots = make([]ref, n)
	t.shift = uint8(64 - bits.TrailingZeros(uint(n)))
	for _, r := range old {
		if r != 0 {
			t.place(s, r)
		}
	}
}
