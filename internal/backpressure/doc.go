// Package backpressure knows how full the backlog is and says so.
//
// Depth = waiting + in flight + waiting for a retry + forwarded and not yet
// seen by the outlet. It is counted by events, so that a burst between two looks
// cannot slip past, and reconciled with the stream's own count.
//
// At HIGH producers are refused until the depth is back at LOW (hysteresis). At
// MAX everyone is refused; the stream's own limit stands behind that. The hint
// to the refused is the time until the depth is back at LOW at the measured
// drain rate.
//
// The package counts and decides; it neither sends NAKs nor reads streams.
package backpressure
