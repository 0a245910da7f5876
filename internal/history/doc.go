// Package history keeps what happened lately, in bounded memory: a sample a second of the
// last 15 minutes, what each tenant sent in the last seconds, and its last refusals. It
// starts nothing and reads no clock: instants are arguments.
package history
