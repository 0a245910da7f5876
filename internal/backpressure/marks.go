package backpressure

// Marks are the watermarks in messages, resolved against each other.
type Marks struct{ Low, High, Max uint64 }

// Marks resolves the shares of c. c must be valid.
func (c Config) Marks() Marks {
	return Marks{Low: c.Low.Of(c.High), High: c.High, Max: c.Max.Of(c.High)}
}
