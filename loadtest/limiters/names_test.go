package main

import (
	"slices"
	"testing"
	"unsafe"
)

func TestNames(t *testing.T) {
	seen := map[string]bool{}
	for i := range 10_000 {
		n := name(i * 100)
		if len(n) < 20 || len(n) > 23 || seen[n] {
			t.Fatalf("%q", n)
		}
		seen[n] = true
	}
	if got := name(123); got != "tenant-0000123/payments" {
		t.Errorf("%q", got)
	}
	if a, b := name(1), name(1); unsafe.StringData(a) == unsafe.StringData(b) {
		t.Error("two names share their bytes")
	}
}

func TestDrawRequests(t *testing.T) {
	const n, keys = 1 << 17, 1000
	for _, zipf := range []bool{false, true} {
		requests := drawRequests(n, 2, keys, zipf)
		most := [2]string{}
		for g := range requests {
			counts := map[string]int{}
			for _, key := range requests[g] {
				counts[key]++
				if counts[key] > counts[most[g]] {
					most[g] = key
				}
			}
			if len(counts) > keys || len(counts) < keys/2 {
				t.Errorf("%d keys, want up to %d", len(counts), keys)
			}
			share := float64(counts[most[g]]) / n
			if zipf && share < 0.1 || !zipf && share > 0.002 {
				t.Errorf("zipf %v: %s gets %g of all", zipf, most[g], share)
			}
		}
		if zipf && (most[0] != most[1] || most[0] == name(0)) {
			t.Errorf("most frequent are %s and %s; want the same key, which need not be the first", most[0], most[1])
		}
		if slices.Equal(requests[0], requests[1]) {
			t.Error("two goroutines ask for the same")
		}
	}
}
