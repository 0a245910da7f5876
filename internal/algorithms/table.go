package algorithms

import (
	"math"
	"math/bits"
	"runtime"
	"sync"
	"sync/atomic"
)

const (
	shardBits  = 8
	shardCount = 1 << shardBits
)

// shard is a part of a Keyed, by the upper bits of the hash. Decisions load its table
// and lock a slot; the lock here is for who puts keys in or moves them.
type shard struct {
	table atomic.Pointer[table]
	mu    sync.Mutex
	swept int64 // when its idle keys were last looked for
	_     [40]byte
}

// table is open addressing with linear probing. A slot is a head, the words of the key's
// state, and a cell with the key's bytes, all in one place, so that a decision among
// many keys waits for memory once. Slots are only ever added, and a table that is full
// is replaced, so whoever looks for a key needs no lock: the head is what is written
// last.
//
// A head is, from the top:
//
//	1 lock   the state is somebody's
//	1 moved  for good: the key is in the shard's new table
//	16 plan  the number of the key's plan
//	46 tag   of the hash, the lowest bit 1; an empty slot is 0
//
// The states of the default plan, if that is one bucket of a word, are changed by
// compare-and-swap alone; while a shard moves they are frozenWord.
type table struct {
	policy *policy
	// plain is that bucket, nil if there is none, and its rule.
	plain     *bucket
	plainRule *Rule

	words  []uint64
	size   uint64 // slots
	stride uint64 // words of a slot
	cell   uint64 // words of a cell, the last of a slot
	long   []byte // keys that are too long for a cell

	// Under the shard's lock: how many keys may still be added, how many there are,
	// and how much of long is in use.
	room, keys, longUsed int
}

const (
	lockBit   = 1 << 63
	movedBit  = 1 << 62
	planShift = 46
	planBits  = 16
	tagMask   = 1<<planShift - 1

	leastSlots = 8
)

// The load after a rebuild and at most, in 64ths.
const (
	startLoad = 45
	fullLoad  = 51
)

// newTable has room for keys of such lengths, and an eighth more.
func newTable(c *policy, l *lengths) *table {
	size := max(leastSlots, (l.total+1)*64/startLoad)
	cell, long := l.cell()
	stride := c.stride + cell
	t := &table{
		policy: c, words: make([]uint64, size*stride),
		size: uint64(size), stride: uint64(stride), cell: uint64(cell),
		long: make([]byte, long+long/8),
		room: max(1, size*fullLoad/64),
	}
	if p := c.plans[0]; len(p.algorithms) == 1 {
		if b, ok := p.algorithms[0].(*bucket); ok {
			t.plain, t.plainRule = b, &p.rules[0]
		}
	}
	return t
}

// tagOf and place take the tag and the first slot from the bits of a hash that the
// shard's number leaves; the tag's lower bits say where the place is, too.
func tagOf(h uint64) uint64 { return h&tagMask | 1 }

func (t *table) place(h uint64) uint64 {
	hi, _ := bits.Mul64(h<<shardBits, t.size)
	return hi
}

// find gives a key's slot and its head, without the lock bit; -1 if it is not there.
func (t *table) find(key string, h uint64) (slot int, head uint64) {
	if t == nil {
		return -1, 0
	}
	var want packed
	inline := t.inline(len(key))
	if inline {
		want.pack(key, t.cell)
	}
	tag := tagOf(h)
	for i := t.place(h); ; {
		at := i * t.stride
		head = atomic.LoadUint64(&t.words[at])
		if head == 0 {
			return -1, 0
		}
		if head&tagMask == tag {
			cell := t.words[at+t.stride-t.cell:][:t.cell]
			if inline && want.is(cell) || !inline && t.isLong(cell, key) {
				return int(i), head &^ lockBit
			}
		}
		if i++; i == t.size {
			i = 0
		}
	}
}

func (t *table) plan(head uint64) *plan {
	return t.policy.plans[head>>planShift&(maxPlans-1)]
}

func (t *table) state(slot int) []uint64 {
	at := uint64(slot) * t.stride
	return t.words[at+1 : at+t.stride-t.cell]
}

// frozenWord is a plain state that moves; no bucket comes to it.
const frozenWord = math.MaxUint64

// decidePlain decides by the plain bucket; false if the state is moving.
func (t *table) decidePlain(slot int, now, n int64, take bool) (Decision, bool) {
	p := &t.words[uint64(slot)*t.stride+1]
	for {
		word := atomic.LoadUint64(p)
		if word == frozenWord {
			runtime.Gosched() // the new table comes any moment
			return Decision{}, false
		}
		d, next := t.plain.step(word, now, n)
		if !take || !d.Allowed || n == 0 || atomic.CompareAndSwapUint64(p, word, next) {
			return d, true
		}
		stepBack()
	}
}

// plainRoom is where freeze keeps the plain states.
func (t *table) plainRoom() []uint64 {
	if t.plain == nil {
		return nil
	}
	return make([]uint64, t.size)
}

// freeze takes a slot for good, or until thaw: nobody changes its state meanwhile. A
// plain one is kept in plain.
func (t *table) freeze(slot int, head uint64, plain []uint64) {
	t.lock(slot, head)
	if t.isPlain(head) {
		plain[slot] = atomic.SwapUint64(&t.words[uint64(slot)*t.stride+1], frozenWord)
	}
}

func (t *table) thaw(slot int, head uint64, plain []uint64) {
	if t.isPlain(head) {
		atomic.StoreUint64(&t.words[uint64(slot)*t.stride+1], plain[slot])
	}
	t.unlock(slot, head)
}

// frozen is the state of a slot that was frozen.
func (t *table) frozen(slot int, head uint64, plain []uint64) []uint64 {
	if t.isPlain(head) {
		return plain[slot : slot+1]
	}
	return t.state(slot)
}

func (t *table) isPlain(head uint64) bool {
	return t.plain != nil && head>>planShift&(maxPlans-1) == 0
}

// lock takes a slot, whose head without the lock bit is given; false if the key has
// moved.
func (t *table) lock(slot int, head uint64) bool {
	p := &t.words[uint64(slot)*t.stride]
	for spins := 0; ; spins++ {
		if head&movedBit != 0 {
			runtime.Gosched() // the new table comes any moment
			return false
		}
		if atomic.CompareAndSwapUint64(p, head, head|lockBit) {
			return true
		}
		if spins > 30 {
			runtime.Gosched()
		}
		head = atomic.LoadUint64(p) &^ lockBit
	}
}

func (t *table) unlock(slot int, head uint64) {
	atomic.StoreUint64(&t.words[uint64(slot)*t.stride], head)
}

// fits reports whether a key of so many bytes has room.
func (t *table) fits(bytes int) bool {
	return t.room > 0 && (t.inline(bytes) || len(t.long)-t.longUsed >= bytes+2)
}

// add puts a key in that is not there, with room for it, and gives its slot; the head
// is yet to be stored.
func (t *table) add(key []byte, h uint64, plan int) (slot int, head uint64) {
	i := t.place(h)
	for atomic.LoadUint64(&t.words[i*t.stride]) != 0 {
		if i++; i == t.size {
			i = 0
		}
	}
	t.setCell(t.words[(i+1)*t.stride-t.cell:][:t.cell], key)
	t.room--
	t.keys++
	return int(i), tagOf(h) | uint64(plan)<<planShift
}

// heads gives every slot that holds a key, and its head without the lock bit.
func (t *table) heads(yield func(slot int, head uint64) bool) {
	for i := range t.size {
		if head := atomic.LoadUint64(&t.words[i*t.stride]); head != 0 && !yield(int(i), head&^lockBit) {
			return
		}
	}
}
