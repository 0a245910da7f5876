package algorithms

import (
	"math/big"
	"sort"
	"time"
)

// Departure is one delivery in a log: when it left and how many went together.
type Departure struct {
	At int64 // ns
	N  uint64
}

// Excess is the window of a log that comes nearest to breaking a rate's promise,
// or breaks it by most.
type Excess struct {
	From, To int64
	// Count left in the closed window; Allowed is w·rate + tolerance·rate + the
	// largest batch.
	Count   uint64
	Allowed float64
	// Broken says that Count is over Allowed, judged exactly.
	Broken bool
}

// CheckRate looks in a log of departures, in any order, for a window that holds
// more than w·rate + tolerance·rate + the largest batch. It is exact and takes
// O(n log n).
//
// With S the running sum of what left before a departure, a window from i to j
// conforms if (S_j + N_j − S_i)·T ≤ (at_j − at_i) + tolerance + max·T. So it is
// enough to follow the least S_i·T − at_i.
func CheckRate(log []Departure, rate Rate, tolerance time.Duration) Excess {
	if len(log) == 0 || rate.IsUnlimited() {
		return Excess{}
	}
	log = append([]Departure(nil), log...)
	sort.Slice(log, func(i, j int) bool { return log[i].At < log[j].At })
	var largest uint64
	for _, d := range log {
		largest = max(largest, d.N)
	}
	n, per := new(big.Int).SetUint64(rate.N), big.NewInt(int64(rate.Per))
	// Everything times N: S·per − at·N.
	height := func(sum uint64, at int64) *big.Int {
		h := new(big.Int).Mul(new(big.Int).SetUint64(sum), per)
		return h.Sub(h, new(big.Int).Mul(big.NewInt(at-log[0].At), n))
	}
	var (
		before  uint64
		low     *big.Int
		lowAt   int
		sums    = make([]uint64, len(log))
		highest *big.Int
		from    int
		to      int
	)
	for j, d := range log {
		sums[j] = before
		if h := height(before, d.At); low == nil || h.Cmp(low) < 0 {
			low, lowAt = h, j
		}
		before += d.N
		rise := height(before, d.At)
		rise.Sub(rise, low)
		if highest == nil || rise.Cmp(highest) > 0 {
			highest, from, to = rise, lowAt, j
		}
	}
	limit := new(big.Int).Mul(big.NewInt(int64(tolerance)), n)
	limit.Add(limit, new(big.Int).Mul(new(big.Int).SetUint64(largest), per))
	e := Excess{From: log[from].At, To: log[to].At, Count: sums[to] + log[to].N - sums[from]}
	e.Broken = highest.Cmp(limit) > 0
	e.Allowed = (time.Duration(e.To-e.From)+tolerance).Seconds()*rate.PerSecond() + float64(largest)
	return e
}
