package backpressure

import "time"

// Marks are the watermarks in messages, resolved against each other, and the
// stream's cap in bytes (0: none).
type Marks struct{ Low, High, Max, MaxBytes uint64 }

// Marks resolves the shares of c. c must be valid.
func (c Config) Marks() Marks {
	return Marks{Low: c.Low.Of(c.High), High: c.High, Max: c.Max.Of(c.High), MaxBytes: uint64(c.MaxBytes)}
}

// Rules are what a Backlog decides by.
type Rules struct {
	Marks
	// Fair: under pressure tenants below their part are admitted.
	Fair bool
	// TenantMax is the most messages of one tenant; 0: any number.
	TenantMax uint64
	// HighAge and HighOutage are the marks of the signals Age and Outage; 0: off.
	HighAge, HighOutage time.Duration
}

// Rules resolves c, which must be valid.
func (c Config) Rules() Rules {
	return Rules{
		Marks: c.Marks(), Fair: bool(c.Fair), TenantMax: c.TenantMax.Of(c.High),
		HighAge: time.Duration(c.HighAge), HighOutage: time.Duration(c.HighOutage),
	}
}
