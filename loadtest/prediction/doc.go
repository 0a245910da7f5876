// Package prediction holds what internal/simulation predicts of a scenario beside what a
// trial of it came to: the same arrivals, gateway, database and producers, once under a
// virtual clock and once in real time.
package prediction
