//go:build race

package app

const measuresTime = false
