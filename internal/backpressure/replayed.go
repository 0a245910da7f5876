package backpressure

import "slices"

// Replayed counts a message of so many bytes that was stored beside the front door, under
// the sequence seq. Each of them lies in the stream after L until a canary has told
// of it, so
//
//	unseen = (F − M) + (L − S) + stored beside the door after L
//
// While all that was forwarded is confirmed, L itself moves up to seq: nothing else
// can lie between.
func (b *Backlog) Replayed(seq uint64, bytes int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.bytesNow += uint64(bytes) + recordBytes
	switch {
	case seq <= b.lastSeq: // told of already
	case b.forwarded == b.confirmed:
		b.lastSeq = seq
		b.forgetBeside()
	default:
		b.beside = append(b.beside, seq)
	}
	b.update()
}

// forgetBeside takes out what lies up to L; it requires that mu is held.
func (b *Backlog) forgetBeside() {
	b.beside = slices.DeleteFunc(b.beside, func(seq uint64) bool { return seq <= b.lastSeq })
}
