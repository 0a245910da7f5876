// Package tracing makes the spans of a message's way through the gateway and sends them
// over OTLP:
//
//	admit    from its arrival to its forwarding, or to its refusal
//	wait     from its place in the backlog to its departure
//	deliver  one attempt
//
// A message carries its admit span's context through the backlog as the header
// traceparent, so that wait and deliver are made from what is stored and survive a
// restart. The consumer gets deliver's context. Without sampling a producer's traceparent
// stays as it is.
//
// Nothing here may slow a message down: spans go to a bounded queue and are dropped when
// it is full.
package tracing
