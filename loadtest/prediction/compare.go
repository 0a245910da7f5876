package prediction

import (
	"fmt"
	"maps"
	"math"
	"slices"
)

// The bounds of a prediction: within 5 %, and beyond that by three messages where there are few,
// as where the simulation is held against gateways in virtual time.
const (
	Within = 0.05
	Few    = 3
)

// Row is one figure, predicted and measured.
type Row struct {
	What                string
	Predicted, Measured float64
	Unit                string
	// Off is how far both are apart, as a part of OfWhat.
	Off    float64
	OfWhat string
	// Missed says that it is held against the prediction and is off by too much.
	Missed bool
}

// Compare puts a prediction beside what was measured. The depth, largest, mean and of the worst
// second, and the refusals must be within so much; the rest is told. The worst second is
// judged by HIGH: where few wait, a message more is much of them and nothing of it.
func Compare(predicted, measured Outcome, high uint64, within float64) []Row {
	relative := func(what, unit string, p, m float64, held bool) Row {
		r := Row{What: what, Predicted: p, Measured: m, Unit: unit, OfWhat: "measured", Off: (p - m) / max(1, math.Abs(m))}
		if p == m { // also where both are infinite
			r.Off = 0
		}
		r.Missed = held && max(0, math.Abs(p-m)-Few)/max(1, m) > within
		return r
	}
	rows := []Row{
		relative("depth, largest", "", float64(predicted.Peak), float64(measured.Peak), true),
		relative("depth, mean", "", predicted.Mean, measured.Mean, true),
	}
	second, p, m := worst(predicted.Depths, measured.Depths)
	off := (p - m) / float64(high)
	rows = append(rows, Row{
		What: fmt.Sprintf("depth, worst second (%d)", second), Predicted: p, Measured: m, OfWhat: "HIGH", Off: off,
		Missed: max(0, math.Abs(p-m)-Few)/float64(high) > within,
	})
	rows = append(rows, relative("refused", "", float64(predicted.Refusals()), float64(measured.Refusals()), true))
	reasons := map[string]uint64{}
	maps.Copy(reasons, predicted.Refused)
	maps.Copy(reasons, measured.Refused)
	if len(reasons) > 1 {
		for _, reason := range slices.Sorted(maps.Keys(reasons)) {
			rows = append(rows, relative("  "+reason, "", float64(predicted.Refused[reason]), float64(measured.Refused[reason]), false))
		}
	}
	return append(rows,
		relative("dead letters", "", float64(predicted.DeadLetters), float64(measured.DeadLetters), false),
		relative("delivered", "", float64(predicted.Delivered), float64(measured.Delivered), false),
		relative("drained after", "s", predicted.Drain, measured.Drain, false),
	)
}

// worst is the second at whose end the depths are furthest apart, by the nearest that was
// measured around it. What one of them does not tell of is 0: it was over.
func worst(predicted, measured []Depth) (second int, p, m float64) {
	of := func(depths []Depth, i int) Depth {
		if i < len(depths) {
			return depths[i]
		}
		return Depth{}
	}
	for i := range max(len(predicted), len(measured)) {
		a, near := of(predicted, i).Low, of(measured, i)
		b := min(max(a, near.Low), near.High)
		if off := math.Abs(float64(a) - float64(b)); second == 0 || off > math.Abs(p-m) {
			second, p, m = i+1, float64(a), float64(b)
		}
	}
	return second, p, m
}

// Missed reports whether one of the rows is.
func Missed(rows []Row) bool {
	return slices.ContainsFunc(rows, func(r Row) bool { return r.Missed })
}
