//go:build !race

package app

// measuresTime: under the race detector everything takes several times as long, so that
// figures are judged without it (`make bench`).
const measuresTime = true
