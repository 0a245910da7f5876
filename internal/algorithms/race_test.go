//go:build race

package algorithms

const measuresHeap = false
