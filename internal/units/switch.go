package units

import (
	"fmt"
	"time"
)

const off = "off"

// Switch is on or off; the zero Switch is off.
type Switch bool

// String gives the form that UnmarshalText reads.
func (s Switch) String() string {
	if s {
		return "on"
	}
	return off
}

// MarshalText implements encoding.TextMarshaler.
func (s Switch) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText reads "on" or "off".
func (s *Switch) UnmarshalText(text []byte) error {
	switch string(text) {
	case "on":
		*s = true
	case off:
		*s = false
	default:
		return fmt.Errorf("%q is neither on nor off", text)
	}
	return nil
}

// Span is a duration, or off; the zero Span is off.
type Span time.Duration

// String gives the form that UnmarshalText reads.
func (s Span) String() string {
	if s == 0 {
		return off
	}
	return FormatDuration(time.Duration(s))
}

// MarshalText implements encoding.TextMarshaler.
func (s Span) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText reads a duration above 0, or "off".
func (s *Span) UnmarshalText(text []byte) error {
	if string(text) == off {
		*s = 0
		return nil
	}
	d, err := ParseDuration(string(text))
	if err != nil {
		return fmt.Errorf("%w, or off", err)
	}
	if d <= 0 {
		return fmt.Errorf("%s is not above 0; off switches it off", text)
	}
	*s = Span(d)
	return nil
}
