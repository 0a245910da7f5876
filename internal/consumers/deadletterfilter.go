package consumers

import (
	"errors"
	"math"
	"regexp"
	"time"
)

// DeadLetterFilter selects dead letters; the zero value selects all. Every field that
// is set must hold.
type DeadLetterFilter struct {
	// Tenant is one tenant's name: the others' dead letters are not even read.
	Tenant string
	// Class is why they died.
	Class ErrorClass
	// After and Before bound when they died: at After or later, before Before.
	After, Before time.Time
	// From and To bound the sequence in the dead-letter stream, both included; To 0 is
	// without end.
	From, To uint64
}

var tenantName = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)

// Validate says what is wrong with it.
func (f DeadLetterFilter) Validate() error {
	var errs []error
	if f.Tenant != "" && !tenantName.MatchString(f.Tenant) { // it becomes part of a subject
		errs = append(errs, errors.New("tenant: must be 1 to 64 of A-Z a-z 0-9 _ -"))
	}
	if f.Class != "" {
		if _, err := ParseErrorClass(string(f.Class)); err != nil {
			errs = append(errs, err)
		}
	}
	if !f.After.IsZero() && !f.Before.IsZero() && !f.After.Before(f.Before) {
		errs = append(errs, errors.New("nothing is both so old and so new"))
	}
	if f.To != 0 && f.From > f.To {
		errs = append(errs, errors.New("the range of sequences is empty: its first is above its last"))
	}
	return errors.Join(errs...)
}

// All reports whether f selects everything.
func (f DeadLetterFilter) All() bool { return f == DeadLetterFilter{} }

// last is the highest sequence that f selects.
func (f DeadLetterFilter) last() uint64 {
	if f.To == 0 {
		return math.MaxUint64
	}
	return f.To
}

// admits looks at what the stream cannot select by.
func (f DeadLetterFilter) admits(d DeadLetter) bool {
	return d.Seq >= f.From && d.Seq <= f.last() &&
		(f.Tenant == "" || d.Tenant == f.Tenant) &&
		(f.Class == "" || d.Class == f.Class) &&
		(f.After.IsZero() || !d.DiedAt.Before(f.After)) &&
		(f.Before.IsZero() || d.DiedAt.Before(f.Before))
}
