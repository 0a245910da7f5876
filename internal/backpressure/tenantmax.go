package backpressure

import (
	"fmt"

	"github.com/flowgate/flowgate/internal/units"
)

// TenantMax is the most messages that one tenant may have in the backlog, a number or a
// percentage of HIGH. The zero TenantMax is off.
type TenantMax struct {
	share units.Share
	on    bool
}

// Of is the number of messages; 0 if it is off.
func (m TenantMax) Of(high uint64) uint64 {
	if !m.on {
		return 0
	}
	return m.share.Of(high)
}

// String gives the form that UnmarshalText reads.
func (m TenantMax) String() string {
	if !m.on {
		return "off"
	}
	return m.share.String()
}

// MarshalText implements encoding.TextMarshaler.
func (m TenantMax) MarshalText() ([]byte, error) { return []byte(m.String()), nil }

// UnmarshalText reads "500", "50%" or "off".
func (m *TenantMax) UnmarshalText(text []byte) error {
	if string(text) == "off" {
		*m = TenantMax{}
		return nil
	}
	share, err := units.ParseShare(string(text))
	if err != nil {
		return fmt.Errorf("%w, or off", err)
	}
	*m = TenantMax{share, true}
	return nil
}
