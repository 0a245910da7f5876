package main

import (
	"math/rand/v2"
	"strconv"
	"strings"
)

var topics = [...]string{"users", "orders", "invoice", "payments"}

// name is the key of a number, 20 to 23 bytes, always a new string.
func name(i int) string {
	digits := strconv.Itoa(i)
	return "tenant-0000000"[:14-len(digits)] + digits + "/" + topics[i%len(topics)]
}

func names(n int) []string {
	s := make([]string, n)
	for i := range s {
		s[i] = name(i)
	}
	return s
}

// zipfExponent makes of a million keys one that gets each 11th request.
const zipfExponent = 1.07

// drawRequests gives each goroutine the keys of n requests, uniform or by Zipf's
// law; the frequent ones lie anywhere among the rest. They lie in memory one after
// the other in the order of their use: as a request just read, a key is in the
// cache, and it is never the very string that a store keeps.
func drawRequests(n, goroutines, keys int, zipf bool) [][]string {
	place := rand.New(rand.NewPCG(uint64(keys), 0)).Perm(keys)
	requests := make([][]string, goroutines)
	for g := range requests {
		random := rand.New(rand.NewPCG(1, uint64(g)))
		draw := func() int { return random.IntN(keys) }
		if zipf {
			z := rand.NewZipf(random, zipfExponent, 1, uint64(keys-1))
			draw = func() int { return place[z.Uint64()] }
		}
		var text strings.Builder
		ends := make([]int, n)
		for i := range ends {
			text.WriteString(name(draw()))
			ends[i] = text.Len()
		}
		requests[g] = make([]string, n)
		begin := 0
		for i, end := range ends {
			requests[g][i] = text.String()[begin:end]
			begin = end
		}
	}
	return requests
}
