package algorithms

import (
	"math/big"
	"time"

	"pgregory.net/rapid"
)

func span(from, to int64) *big.Rat {
	return new(big.Rat).SetInt(new(big.Int).Sub(big.NewInt(to), big.NewInt(from)))
}

func minRat(a, b *big.Rat) *big.Rat {
	if a.Cmp(b) < 0 {
		return a
	}
	return b
}

// floor rounds towards minus infinity.
func floor(r *big.Rat) *big.Int { return new(big.Int).Div(r.Num(), r.Denom()) }

// ceil rounds towards plus infinity.
func ceil(r *big.Rat) *big.Int {
	return new(big.Int).Neg(floor(new(big.Rat).Neg(r)))
}

var anyPeriod = rapid.OneOf(
	rapid.Int64Range(1, 1000),
	rapid.SampledFrom([]int64{1e6, 250e6, 1e9, 60e9, 3600e9, 86400e9, int64(maxPeriod)}),
	rapid.Int64Range(1, int64(maxPeriod)),
)

var anyRate = rapid.Custom(func(t *rapid.T) Rate {
	r := Rate{Per: time.Duration(anyPeriod.Draw(t, "per"))}
	most := uint64(r.Per) // one a nanosecond
	r.N = rapid.OneOf(rapid.Uint64Range(0, min(20, most)), rapid.Uint64Range(0, most)).Draw(t, "n")
	return r
})

var anyBurst = rapid.OneOf(rapid.Uint64Range(0, 20), rapid.Uint64Range(0, 1<<62-1), rapid.Just(uint64(200_000)))

// anyRule is a rule of an algorithm.
func anyRule(algorithm string) *rapid.Generator[Rule] {
	return rapid.Custom(func(t *rapid.T) Rule {
		r := Rule{Algorithm: algorithm, Rate: anyRate.Draw(t, "rate")}
		if r.bucket() {
			r.Burst = anyBurst.Draw(t, "burst")
		}
		return r
	})
}

func anyRequest(t *rapid.T, capacity uint64) int64 {
	c := int64(capacity)
	return rapid.OneOf(rapid.Int64Range(0, 5), rapid.Int64Range(0, c), rapid.SampledFrom([]int64{c, c + 1})).Draw(t, "tokens")
}
