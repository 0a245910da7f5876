// Package backpressure knows how full the backlog is, says so, and tells who is refused
// when to come back.
//
// Depth = waiting + in flight + waiting for a retry + forwarded and not yet
// seen by the outlet. It is counted by events, so that a burst between two looks
// cannot slip past, and reconciled with the stream's own count; and by tenant.
//
// Signals put the backlog under pressure, each with hysteresis of its own: the depth from
// HIGH until LOW, the bytes, the age of the oldest message, the broker's storage, an outage
// of the consumer. Under pressure those are refused first who filled it: a tenant that
// holds less than its weight's part of HIGH is let in while there is room below MAX. At MAX
// everyone is refused; the stream's own limit stands behind that.
//
// The hint to the refused is a promise. It is the time until the backlog is back at LOW, or
// its tenant at its part of it, at the measured drain rate, and a slot of its own in its
// tenant's line, one slot each 1/rate of that tenant. At its slot it is let in, known by its message id or, without
// one, as the next due of its tenant. From HIGH on until the depth is below 0.9 of LOW and
// nobody has a slot, who comes for the first time gets a slot too, unless its tenant is back
// at its part of LOW and owes nobody a place. Slots that nobody claims idle nobody: below
// 0.9 of LOW anyone is let in. With FAIR off all tenants are one.
//
// The rate is shared with others who may have nothing more to send long before the end of
// one tenant's line. Who has a slot much later than the time in which all who wait now can
// be delivered is told that time in its place, and looks in: let in below 0.9 of LOW, else
// refused until its slot, which is kept.
//
// A slot is forgotten some seconds after its time; those further off than a minute are not
// promised: they are spread over the second half of a minute, or of twice that time. While nobody knows how long nothing will be
// delivered the hint is as long again as that has lasted. A restart forgets all promises.
//
// The package counts and decides; it neither sends NAKs nor reads streams.
package backpressure
