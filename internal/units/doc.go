// Package units reads and writes the quantities of the configuration: sizes in
// bytes, shares of another value, durations. Each form has one meaning; what a
// person may have meant otherwise is refused with an error that says what is
// accepted.
package units
