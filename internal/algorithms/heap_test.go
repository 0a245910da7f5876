package algorithms

import "runtime"

// heapInUse is the bytes in use after everything unused is gone.
func heapInUse() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
