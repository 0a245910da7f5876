// Package fragile is a database that suffers as real ones do: it is fast while few
// statements are in flight, slows down past a knee so that less gets done the more it is
// asked, goes down when it is overrun, and comes back cold. It is a model: time is an
// argument, nothing waits, and the same calls give the same answers.
//
// All statements in flight share the machine (processor sharing): with n of them each
// proceeds at speed 1 up to the knee, and past it at (knee/n)^(1+thrash). So the throughput
// is n/latency up to the knee, and past it the capacity knee/latency times (knee/n)^thrash.
// With a thrash of 0 it stays at the capacity; with 1, four times the knee in flight get
// a quarter of it done.
package fragile
