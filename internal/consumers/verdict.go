package consumers

import (
	"errors"
	"fmt"
	"time"
)

// permanent marks a message that no repetition can save.
type permanent struct{ error }

func (p permanent) Unwrap() error { return p.error }

// Permanent says that this message will never be accepted: it goes to the
// dead-letter stream at once.
func Permanent(err error) error { return permanent{err} }

// later asks for another attempt no sooner than after a wait.
type later struct {
	error
	wait time.Duration
}

func (l later) Unwrap() error { return l.error }

// RetryAfter says that this message failed and may be tried again after d. The
// attempt counts.
func RetryAfter(d time.Duration, err error) error { return later{err, d} }

// overloaded marks a fault of the destination as a whole.
type overloaded struct {
	error
	wait time.Duration
}

func (o overloaded) Unwrap() error { return o.error }

// Overloaded says that the destination as a whole cannot take work now: it
// refused the connection, is shutting down, out of resources, or asked for
// less. The attempt does not count against the message. d is the pause the
// destination asked for, 0 if it named none.
func Overloaded(d time.Duration, err error) error { return overloaded{err, d} }

// held marks a message that was not tried.
type held struct{ error }

func (h held) Unwrap() error { return h.error }

// Held says that this message was not tried, since one before it in its batch has to
// be tried first: it goes back to its place, and the attempt does not count. Only for
// deliveries in order (FLOWGATE_CONSUMER_ORDER=tenant).
func Held(err error) error { return held{err} }

// Verdict is what a destination's answer comes to.
type Verdict struct {
	Kind VerdictKind
	// Wait is the pause that the destination asked for, 0 if it named none.
	Wait time.Duration
	Err  error
}

// VerdictKind sorts verdicts by what happens to the message next.
type VerdictKind uint8

const (
	// Done: the message is stored.
	Done VerdictKind = iota
	// Retry: this message failed; the attempt counts.
	Retry
	// Overload: the destination failed; the attempt does not count.
	Overload
	// Reject: this message can never succeed.
	Reject
	// Hold: this message was not tried.
	Hold
)

// String names the kind as logs and metrics show it.
func (k VerdictKind) String() string {
	switch k {
	case Done:
		return "done"
	case Retry:
		return "retry"
	case Overload:
		return "overload"
	case Reject:
		return "reject"
	case Hold:
		return "hold"
	}
	return fmt.Sprintf("verdict(%d)", uint8(k))
}

// Judge reads a destination's answer.
func Judge(err error) Verdict {
	if err == nil {
		return Verdict{}
	}
	if _, ok := errors.AsType[permanent](err); ok {
		return Verdict{Kind: Reject, Err: err}
	}
	if o, ok := errors.AsType[overloaded](err); ok {
		return Verdict{Kind: Overload, Wait: o.wait, Err: err}
	}
	if _, ok := errors.AsType[held](err); ok {
		return Verdict{Kind: Hold, Err: err}
	}
	if l, ok := errors.AsType[later](err); ok {
		return Verdict{Kind: Retry, Wait: l.wait, Err: err}
	}
	return Verdict{Kind: Retry, Err: err}
}
