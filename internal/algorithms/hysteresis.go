package algorithms

// Hysteresis is a level with two thresholds: it is pressured from High on, until
// it is back at Low. In between it stays as it was, so that it does not flap.
type Hysteresis struct {
	High, Low uint64
	pressured bool
}

// Update takes a reading and reports the level, and whether it changed.
func (h *Hysteresis) Update(v uint64) (pressured, changed bool) {
	was := h.pressured
	switch {
	case v >= h.High:
		h.pressured = true
	case v <= h.Low:
		h.pressured = false
	}
	return h.pressured, h.pressured != was
}

// Pressured is the level after the last reading.
func (h *Hysteresis) Pressured() bool { return h.pressured }
