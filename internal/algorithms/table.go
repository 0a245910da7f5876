package algorithms

import (
	"encoding/binary"
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

// table is open addressing with linear probing. A slot is a head and the words of the
// key's state; the key's bytes lie in a cell of the same number. So where both are
// follows from the hash, and the processor fetches them at once: a key that had to
// be found by way of the slot made a decision among a million keys 1.6 times as
// slow. Slots are only ever added, and a table that is full is replaced, so whoever
// looks for a key needs no lock: the head is what is written last.
//
// A head is, from the top:
//
//	1 lock   the state is somebody's
//	1 moved  for good: the key is in the shard's new table
//	16 plan  the number of the key's plan
//	46 tag   of the hash, the lowest bit 1; an empty slot is 0
//
// A cell begins with the length of the key, or with longKey and where it lies among
// the long ones: a length of two bytes, and the bytes.
//
// The states of the default plan, if that is one bucket of a word, are changed by
// compare-and-swap alone. Their uppermost bit is set while a shard moves.
type table struct {
	policy *policy
	// plain is that bucket, nil if there is none, and its rule.
	plain     *bucket
	plainRule *Rule

	slots  []uint64
	stride uint64
	size   uint64 // slots
	cells  []byte
	cell   uint64 // bytes of a cell
	long   []byte

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

	leastSlots  = 8
	cellStep    = 8
	largestCell = 64
	longKey     = 255
	// maxKey is the longest key, in bytes.
	maxKey = 1<<16 - 1
)

// The load after a rebuild and at most, in 64ths.
const (
	startLoad = 45
	fullLoad  = 51
)

// lengths counts keys by the cell that they need, in steps; those that need a larger
// one than there is come last.
type lengths struct {
	keys  [largestCell/cellStep + 2]int
	total int
	bytes [largestCell/cellStep + 2]int
}

func (l *lengths) add(key int) {
	i := min((key+cellStep)/cellStep, len(l.keys)-1)
	l.keys[i]++
	l.bytes[i] += key + 2
	l.total++
}

// cell is the smallest that seven of eight keys fit in, and how many bytes the others
// take.
func (l *lengths) cell() (size, long int) {
	fit := 0
	for i := 1; i < len(l.keys)-1; i++ {
		if fit += l.keys[i]; fit >= l.total-l.total/8 || i == len(l.keys)-2 {
			for _, b := range l.bytes[i+1:] {
				long += b
			}
			return i * cellStep, long
		}
	}
	return largestCell, 0
}

// newTable has room for keys of such lengths, and an eighth more.
func newTable(c *policy, l *lengths) *table {
	size := max(leastSlots, (l.total+1)*64/startLoad)
	cell, long := l.cell()
	t := &table{
		policy: c, stride: uint64(c.stride), size: uint64(size),
		slots: make([]uint64, size*c.stride),
		cells: make([]byte, size*cell), cell: uint64(cell),
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
	tag := tagOf(h)
	for i := t.place(h); ; {
		head = atomic.LoadUint64(&t.slots[i*t.stride])
		if head == 0 {
			return -1, 0
		}
		if head&tagMask == tag && string(t.name(int(i))) == key {
			return int(i), head &^ lockBit
		}
		if i++; i == t.size {
			i = 0
		}
	}
}

// name is the key of a slot that is not empty. The bytes are there before the head
// is, and do not change.
func (t *table) name(slot int) []byte {
	cell := t.cells[uint64(slot)*t.cell:][:t.cell]
	if n := cell[0]; n != longKey {
		return cell[1 : 1+n]
	}
	at := binary.LittleEndian.Uint32(cell[1:])
	n := uint32(binary.LittleEndian.Uint16(t.long[at:]))
	return t.long[at+2 : at+2+n]
}

func (t *table) plan(head uint64) *plan {
	return t.policy.plans[head>>planShift&(maxPlans-1)]
}

func (t *table) state(slot int) []uint64 {
	at := uint64(slot) * t.stride
	return t.slots[at+1 : at+t.stride]
}

// frozenBit marks a plain state that moves.
const frozenBit = 1 << 63

// decidePlain decides by the plain bucket; false if the state is moving.
func (t *table) decidePlain(slot int, now, n int64, take bool) (Decision, bool) {
	p := &t.slots[uint64(slot)*t.stride+1]
	for {
		word := atomic.LoadUint64(p)
		if word&frozenBit != 0 {
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

// freeze takes a slot for good, or until thaw. Nobody changes its state meanwhile.
func (t *table) freeze(slot int, head uint64) {
	t.lock(slot, head)
	if t.isPlain(head) {
		atomic.OrUint64(&t.slots[uint64(slot)*t.stride+1], frozenBit)
	}
}

func (t *table) thaw(slot int, head uint64) {
	if t.isPlain(head) {
		atomic.AndUint64(&t.slots[uint64(slot)*t.stride+1], ^uint64(frozenBit))
	}
	t.unlock(slot, head)
}

// frozen is the state of a slot that was frozen; room is used for a plain one's.
func (t *table) frozen(slot int, head uint64, room []uint64) []uint64 {
	if !t.isPlain(head) {
		return t.state(slot)
	}
	room[0] = atomic.LoadUint64(&t.slots[uint64(slot)*t.stride+1]) &^ frozenBit
	return room[:1]
}

func (t *table) isPlain(head uint64) bool {
	return t.plain != nil && head>>planShift&(maxPlans-1) == 0
}

// lock takes a slot, whose head without the lock bit is given; false if the key has
// moved.
func (t *table) lock(slot int, head uint64) bool {
	p := &t.slots[uint64(slot)*t.stride]
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
	atomic.StoreUint64(&t.slots[uint64(slot)*t.stride], head)
}

// fits reports whether a key of so many bytes has room.
func (t *table) fits(bytes int) bool {
	return t.room > 0 && (t.inline(bytes) || len(t.long)-t.longUsed >= bytes+2)
}

func (t *table) inline(bytes int) bool { return bytes < int(t.cell) }

// add puts a key in that is not there, with room for it, and gives its slot; the head
// is yet to be stored.
func (t *table) add(key []byte, h uint64, plan int) (slot int, head uint64) {
	i := t.place(h)
	for atomic.LoadUint64(&t.slots[i*t.stride]) != 0 {
		if i++; i == t.size {
			i = 0
		}
	}
	cell := t.cells[i*t.cell:][:t.cell]
	if t.inline(len(key)) {
		cell[0] = byte(len(key))
		copy(cell[1:], key)
	} else {
		cell[0] = longKey
		binary.LittleEndian.PutUint32(cell[1:], uint32(t.longUsed))
		binary.LittleEndian.PutUint16(t.long[t.longUsed:], uint16(len(key)))
		t.longUsed += 2 + copy(t.long[t.longUsed+2:], key)
	}
	t.room--
	t.keys++
	return int(i), tagOf(h) | uint64(plan)<<planShift
}

// heads gives every slot that holds a key, and its head without the lock bit.
func (t *table) heads(yield func(slot int, head uint64) bool) {
	for i := range t.size {
		if head := atomic.LoadUint64(&t.slots[i*t.stride]); head != 0 && !yield(int(i), head&^lockBit) {
			return
		}
	}
}
