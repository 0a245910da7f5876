package main

import (
	"fmt"
	"runtime"
	"slices"
	"time"
)

// mostBytes is the bound on what a key of ours takes beyond its own bytes.
const mostBytes = 40

const (
	whole  = "all"
	beyond = "beyond the key"
)

// measureMemory is what a key takes, after the store has grown key by key; of ours
// also after all of them have given way to as many others.
func measureMemory(p pace) (report, error) {
	keys := slices.Max(p.keys)
	r := report{Table: table{Name: fmt.Sprintf("memory at %d keys", keys), Unit: "bytes a key", Columns: []string{whole, beyond}}}
	for _, s := range stores {
		bytes, err := s.bytes(keys, name)
		if err != nil {
			return r, fmt.Errorf("%s: %w", s.name, err)
		}
		r.enter(s.name, bytes, s.keeps, keys)
	}
	evicted, err := bytesEvicted(keys)
	if err != nil {
		return r, err
	}
	const after = ours + ", after eviction"
	r.enter(after, evicted, keepsKeys, keys)
	r.Floors = append(r.Floors, r.Table.most(ours, beyond, mostBytes), r.Table.most(after, beyond, mostBytes))
	return r, nil
}

func (r *report) enter(contestant string, bytes float64, keeps bool, keys int) {
	own := 0.0
	if keeps {
		for i := range keys {
			own += float64(len(name(i)))
		}
		own /= float64(keys)
	}
	row := r.Table.row(contestant)
	row.Values[whole], row.Values[beyond] = bytes, bytes-own
}

// heap is what lives.
func heap() float64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc)
}

// bytes is what a key takes in all. Nobody but the store holds the names, so what
// it keeps of them counts.
func (s store) bytes(keys int, name func(int) string) (float64, error) {
	one := make([]string, 1)
	before := heap()
	decide, stop, err := s.make(lasting, keys)
	if err != nil {
		return 0, err
	}
	defer stop()
	for i := range keys {
		one[0] = name(i)
		decide(one)
	}
	one[0] = ""
	after := heap()
	runtime.KeepAlive(decide)
	return (after - before) / float64(keys), nil
}

// bytesEvicted fills a store of ours with keys that are full again when as many
// others come.
func bytesEvicted(keys int) (float64, error) {
	before := heap()
	s, err := newStore(quota{10, time.Millisecond}.rule(), keys)
	if err != nil {
		return 0, err
	}
	for i := range 2 * keys {
		s.take(name(i), int64(i/keys)*int64(time.Hour))
	}
	after := heap()
	held := s.len()
	runtime.KeepAlive(s)
	if held < keys/2 {
		return 0, fmt.Errorf("%d keys held of the last %d", held, keys)
	}
	return (after - before) / float64(held), nil
}
