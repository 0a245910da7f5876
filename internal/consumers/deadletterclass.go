package consumers

import (
	"errors"
	"fmt"
	"slices"
)

// ErrorClass says why a message became a dead letter. Operators select by it, so the
// names stay.
type ErrorClass string

// The classes.
const (
	// ClassPermanent: the destination will never take it.
	ClassPermanent ErrorClass = "permanent"
	// ClassAttempts: it failed FLOWGATE_CONSUMER_MAX_ATTEMPTS times.
	ClassAttempts ErrorClass = "attempts"
	// ClassExpired: its Flowgate-Deadline passed while it waited.
	ClassExpired ErrorClass = "expired"
	// ClassCrashed: the process ended in the middle of its attempts, each time.
	ClassCrashed ErrorClass = "crashed"
	// ClassUnknown: it does not say.
	ClassUnknown ErrorClass = "unknown"
)

// ErrorClasses are all classes.
func ErrorClasses() []ErrorClass {
	return []ErrorClass{ClassPermanent, ClassAttempts, ClassExpired, ClassCrashed, ClassUnknown}
}

// ClassOf is the class of a dead letter's reason. One that says nothing else is the
// failure that used up the last attempt.
func ClassOf(reason error) ErrorClass {
	if errors.Is(reason, ErrExpired) {
		return ClassExpired
	}
	if errors.Is(reason, ErrCrashed) {
		return ClassCrashed
	}
	if _, ok := errors.AsType[permanent](reason); ok {
		return ClassPermanent
	}
	return ClassAttempts
}

// ParseErrorClass reads the name of a class.
func ParseErrorClass(s string) (ErrorClass, error) {
	if c := ErrorClass(s); slices.Contains(ErrorClasses(), c) {
		return c, nil
	}
	return "", fmt.Errorf("there is no error class %q; it is permanent, attempts, expired, crashed or unknown", s)
}
