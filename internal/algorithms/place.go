package algorithms

import "hash/maphash"

// Place is where a key was found, or not. It spares the search for whoever decides on
// the same key more than once, and lets searches for several keys overlap.
type Place struct {
	key   string
	hash  uint64
	table *table
	slot  int // -1: not there
	head  uint64
}

// Find looks for a key.
func (k *Keyed) Find(key string) Place {
	p := k.Aim(key)
	p.Seek()
	return p
}

// Aim does what is to be done for a search before memory is waited for. Who looks for
// several keys aims at all of them first, then seeks all: the searches overlap.
func (k *Keyed) Aim(key string) Place {
	if len(key) > maxKey {
		key = key[:maxKey]
	}
	h := maphash.String(k.seed, key)
	return Place{key: key, hash: h, table: k.shard(h).table.Load()}
}

// Seek ends what Aim began.
func (p *Place) Seek() { p.slot, p.head = p.table.find(p.key, p.hash) }
