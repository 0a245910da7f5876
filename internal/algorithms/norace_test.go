//go:build !race

package algorithms

// measuresHeap: the race detector changes what things cost.
const measuresHeap = true
