// Package client publishes through flowgate and does what its refusals ask.
//
// An ordinary JetStream client is enough to produce; what it lacks is patience. A
// Client publishes a message, and if it is refused with a hint waits that long, within
// the context, and tries again under the same Nats-Msg-Id, so that it is stored once
// however often it was tried. What waiting cannot help is returned at once, as a
// *Refused that says why.
//
// Messages that one limit refused wait in line and go one by one at the limit's pace,
// new ones behind them: a message is admitted at its second try, also when a thousand
// wait. Those that the backlog refused wait each for the hint it was given. The gateway
// tells all producers each second how full it is (<NAME>.pressure); a tenant that it
// would refuse is slowed down to its part of the rate before that. Who hears nothing, or
// has no right to listen, is not slowed down.
//
// The package is a few hundred lines over nats.go. It starts no connection and closes
// none.
package client
