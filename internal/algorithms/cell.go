package algorithms

import "encoding/binary"

// A cell holds a key's bytes in words, the first byte lowest, and their number in the
// uppermost byte of its last word. A key that does not fit lies among the table's long
// ones, and the last word says longKey and where: a length of two bytes, then the key.
const (
	wordBytes   = 8
	largestCell = 8 // words
	lengthShift = 56
	longKey     = 255
	// maxKey is the longest key, in bytes.
	maxKey = 1<<16 - 1
)

// lengths counts keys by the cell that they need; those that need a larger one than
// there is come last.
type lengths struct {
	keys  [largestCell + 2]int
	bytes [largestCell + 2]int
	total int
}

func (l *lengths) add(key int) {
	i := min((key+wordBytes)/wordBytes, len(l.keys)-1)
	l.keys[i]++
	l.bytes[i] += key + 2
	l.total++
}

// cell is the words of the smallest cell that seven of eight keys fit in, and how many
// bytes the others take.
func (l *lengths) cell() (words, long int) {
	fit := 0
	for words = 1; words < largestCell; words++ {
		if fit += l.keys[words]; fit >= l.total-l.total/8 {
			break
		}
	}
	for _, b := range l.bytes[words+1:] {
		long += b
	}
	return words, long
}

// packed is a key as a cell holds it.
type packed [largestCell]uint64

// pack makes of a zero p the cell of so many words for a key that fits in it.
func (p *packed) pack(key string, words uint64) {
	i := 0
	for ; len(key) >= wordBytes; i++ {
		p[i&(largestCell-1)] = uint64(key[0]) | uint64(key[1])<<8 | uint64(key[2])<<16 | uint64(key[3])<<24 |
			uint64(key[4])<<32 | uint64(key[5])<<40 | uint64(key[6])<<48 | uint64(key[7])<<56
		key = key[wordBytes:]
	}
	last := uint64(0)
	for j := range len(key) {
		last |= uint64(key[j]) << (8 * j)
	}
	p[i&(largestCell-1)] = last
	p[(words-1)&(largestCell-1)] |= uint64(i*wordBytes+len(key)) << lengthShift
}

func (p *packed) is(cell []uint64) bool {
	for i, w := range cell {
		if p[i&(largestCell-1)] != w {
			return false
		}
	}
	return true
}

// inline reports whether a key of so many bytes fits in a cell.
func (t *table) inline(bytes int) bool { return bytes < int(t.cell)*wordBytes }

// isLong reports whether a cell says that its key is this one, among the long ones.
func (t *table) isLong(cell []uint64, key string) bool {
	last := cell[len(cell)-1]
	return last>>lengthShift == longKey && string(t.longAt(last)) == key
}

func (t *table) longAt(last uint64) []byte {
	at := uint32(last)
	n := uint32(binary.LittleEndian.Uint16(t.long[at:]))
	return t.long[at+2:][:n]
}

// setCell writes a key; it requires that the shard is locked and that there is room.
func (t *table) setCell(cell []uint64, key []byte) {
	if t.inline(len(key)) {
		var p packed
		p.pack(string(key), t.cell)
		copy(cell, p[:])
		return
	}
	cell[len(cell)-1] = longKey<<lengthShift | uint64(t.longUsed)
	binary.LittleEndian.PutUint16(t.long[t.longUsed:], uint16(len(key)))
	t.longUsed += 2 + copy(t.long[t.longUsed+2:], key)
}

// name is the key of a slot that is not empty; room is used for it. The cell is there
// before the head is, and does not change.
func (t *table) name(slot int, room []byte) []byte {
	at := uint64(slot+1) * t.stride
	cell := t.words[at-t.cell : at]
	last := cell[len(cell)-1]
	n := last >> lengthShift
	if n == longKey {
		return t.longAt(last)
	}
	room = room[:0]
	for _, w := range cell {
		room = binary.LittleEndian.AppendUint64(room, w)
	}
	return room[:n]
}

// length is that of a slot's key, in bytes.
func (t *table) length(slot int) int {
	last := t.words[uint64(slot+1)*t.stride-1]
	if n := last >> lengthShift; n != longKey {
		return int(n)
	}
	return len(t.longAt(last))
}
