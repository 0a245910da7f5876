// Package trial runs a scenario: a gateway in a process of its own, a fragile database that
// it delivers to, producers, and faults by time; and the same arrivals sent straight to
// the same database. What it gives back was seen from outside the gateway, but for the
// departure clock's readings, which each delivery carries.
package trial
