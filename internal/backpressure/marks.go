package backpressure

// Marks are the watermarks in messages, resolved against each other, and the
// stream's cap in bytes (0: none).
type Marks struct{ Low, High, Max, MaxBytes uint64 }

// Marks resolves the shares of c. c must be valid.
func (c Config) Marks() Marks {
	return Marks{Low: c.Low.Of(c.High), High: c.High, Max: c.Max.Of(c.High), MaxBytes: uint64(c.MaxBytes)}
}
