package ingress

import "fmt"

// Mode is what the door makes of its limits and of backpressure.
type Mode uint8

const (
	// Enforce refuses what is over a limit, and all while the backlog is full.
	Enforce Mode = iota
	// Shadow decides and counts likewise, and admits all the same.
	Shadow
	// Open asks neither.
	Open
)

var modeNames = [...]string{Enforce: "enforce", Shadow: "shadow", Open: "off"}

// String gives the form that UnmarshalText reads.
func (m Mode) String() string {
	if int(m) < len(modeNames) {
		return modeNames[m]
	}
	return fmt.Sprintf("Mode(%d)", uint8(m))
}

// MarshalText implements encoding.TextMarshaler.
func (m Mode) MarshalText() ([]byte, error) { return []byte(m.String()), nil }

// UnmarshalText reads enforce, shadow or off.
func (m *Mode) UnmarshalText(text []byte) error {
	for mode, name := range modeNames {
		if name == string(text) {
			*m = Mode(mode)
			return nil
		}
	}
	return fmt.Errorf("%q must be one of enforce, shadow, off", text)
}
