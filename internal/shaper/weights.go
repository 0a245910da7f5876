package shaper

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Weights are tenants' parts of the rate, 1 to MaxWeight each.
type Weights map[string]uint32

// MaxWeight is the largest weight.
const MaxWeight = 1000

var tenantForm = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)

// CheckWeight says what is wrong with a tenant's weight; nil if nothing is.
func CheckWeight(tenant string, weight uint64) error {
	if !tenantForm.MatchString(tenant) {
		return fmt.Errorf("%q is no tenant: 1 to 64 of A-Z a-z 0-9 _ -", tenant)
	}
	if weight < 1 || weight > MaxWeight {
		return fmt.Errorf("weight %d of tenant %s must be 1 to %d", weight, tenant, MaxWeight)
	}
	return nil
}

// String gives the form that UnmarshalText reads, by name.
func (w Weights) String() string {
	parts := make([]string, 0, len(w))
	for _, tenant := range slices.Sorted(maps.Keys(w)) {
		parts = append(parts, tenant+"="+strconv.FormatUint(uint64(w[tenant]), 10))
	}
	return strings.Join(parts, ",")
}

// MarshalText implements encoding.TextMarshaler.
func (w Weights) MarshalText() ([]byte, error) { return []byte(w.String()), nil }

// UnmarshalText reads "acme=5,globex=2"; empty is none.
func (w *Weights) UnmarshalText(text []byte) error {
	*w = nil
	if len(text) == 0 {
		return nil
	}
	weights := Weights{}
	var errs []error
	for _, part := range strings.Split(string(text), ",") {
		tenant, number, ok := strings.Cut(strings.TrimSpace(part), "=")
		n, err := strconv.ParseUint(number, 10, 32)
		switch {
		case !ok || err != nil:
			errs = append(errs, fmt.Errorf("%q is not <tenant>=<weight>", part))
		case weights[tenant] != 0:
			errs = append(errs, fmt.Errorf("tenant %s stands twice", tenant))
		default:
			if err := CheckWeight(tenant, n); err != nil {
				errs = append(errs, err)
				continue
			}
			weights[tenant] = uint32(n)
		}
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	*w = weights
	return nil
}

// SetWeights makes w the weights of all tenants, from the next message on; who is not
// named has 1. It may be called from any goroutine. w must not be changed afterwards.
func (s *Shaper) SetWeights(w Weights) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.index.setWeights(w)
}

// Weights gives the weights in force; it must not be changed.
func (s *Shaper) Weights() Weights {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.index.weights
}
