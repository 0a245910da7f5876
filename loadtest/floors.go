package main

import (
	"context"
	"slices"
)

// The floors of the ratios: well below what a quiet machine measures (docs/measurements.md),
// since a machine that runs tests is not quiet. What is under them is a fault.
const (
	asyncFloor   = 0.40
	syncFloor    = 0.50
	ceilingFloor = 0.35
)

// measureFloors compares the gateway with raw JetStream in the same process for some
// seconds, and holds the ratios against their floors also in a short run. A pair is
// measured in turns, and the median of the pairs' ratios counts.
func measureFloors(ctx context.Context, _ bool) ([]figure, error) {
	const rounds = 5
	var async, syncs, ceiling []float64
	for i := range rounds {
		raw, gated, err := forwardingRound(ctx, i%2 == 1, nil,
			publishLoad{producers: 2, messages: 20_000}, publishLoad{producers: 8, messages: 1_000, sync: true})
		if err != nil {
			return nil, err
		}
		async = append(async, gated[0].perSecond/raw[0].perSecond)
		syncs = append(syncs, gated[1].perSecond/raw[1].perSecond)
		bare, err := bareCeiling(ctx, 20_000)
		if err != nil {
			return nil, err
		}
		ours, err := shaperCeiling(ctx, 20_000)
		if err != nil {
			return nil, err
		}
		ceiling = append(ceiling, ours/bare)
	}
	middle := func(ratios []float64) float64 {
		slices.Sort(ratios)
		return ratios[len(ratios)/2]
	}
	return []figure{
		{"2 async producers, through flowgate of raw", middle(async), "", asyncFloor, 0},
		{"8 sync producers, through flowgate of raw", middle(syncs), "", syncFloor, 0},
		{"shaper, rate unlimited, of a bare pull consumer", middle(ceiling), "", ceilingFloor, 0},
	}, nil
}
