package shaper

// ref names a message of a slab; 0 names none.
type ref uint32

// chunkSize is how many messages are allocated at once.
const chunkSize = 1024

// slab holds messages side by side: a million of them as single allocations would
// cost the collector a million visits. A message stays where it is while it is
// taken; a chunk without any goes back to the collector.
type slab struct {
	chunks []chunk
	open   []uint32 // numbers of chunks with room
	spare  []uint32 // numbers without a chunk
}

type chunk struct {
	messages *[chunkSize]message // nil: none; alone it fills its pages
	free     ref                 // the first free one of this chunk, linked by next
	live     int
	open     bool
}

// take gives a fresh message.
func (s *slab) take() (ref, *message) {
	if len(s.open) == 0 {
		s.grow()
	}
	number := s.open[len(s.open)-1]
	c := &s.chunks[number]
	r := c.free
	m := s.at(r)
	c.free, m.next = m.next, 0
	c.live++
	if c.free == 0 {
		c.open = false
		s.open = s.open[:len(s.open)-1]
	}
	return r, m
}

func (s *slab) grow() {
	number := uint32(len(s.chunks))
	c := chunk{messages: new([chunkSize]message), open: true}
	if n := len(s.spare); n > 0 {
		number, s.spare = s.spare[n-1], s.spare[:n-1]
		s.chunks[number] = c
	} else {
		s.chunks = append(s.chunks, c)
	}
	first := ref(number)*chunkSize + 1
	for i := range c.messages[:chunkSize-1] {
		c.messages[i].next = first + ref(i) + 1
	}
	s.chunks[number].free = first
	s.open = append(s.open, number)
}

// at is the message that r names; it holds until r is given back.
func (s *slab) at(r ref) *message {
	return &s.chunks[(r-1)/chunkSize].messages[(r-1)%chunkSize]
}

// give takes a message back.
func (s *slab) give(r ref) {
	number := uint32(r-1) / chunkSize
	c := &s.chunks[number]
	c.messages[(r-1)%chunkSize] = message{next: c.free}
	c.free = r
	c.live--
	if !c.open {
		c.open = true
		s.open = append(s.open, number)
	}
	// The last with room is kept, so that one message coming and going costs nothing.
	if c.live == 0 && len(s.open) > 1 {
		s.chunks[number] = chunk{}
		s.spare = append(s.spare, number)
		for i, n := range s.open {
			if n == number {
				s.open[i] = s.open[len(s.open)-1]
				s.open = s.open[:len(s.open)-1]
				break
			}
		}
	}
}
