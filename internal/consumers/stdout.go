package consumers

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
)

// Stdout is a Destination that writes a JSON line a message, one Write a batch.
// Batches never mix. A reader that is gone, slow, or a disk that is full is the
// destination's fault: messages wait.
type Stdout struct {
	w io.Writer
	// turn is held by the batch that is being written; not a mutex, since a write may
	// hang and Deliver has to return.
	turn chan struct{}
	// torn: the last write ended within a line, and the next must end that. Held with
	// turn.
	torn bool
	jobs sync.Pool
}

// lines are a batch on its way out.
type lines struct {
	buf  []byte
	ends []int // where each line ends in buf
	done chan written
}

// written is what came of a Write.
type written struct {
	n   int
	err error
}

// keptBuffer is the largest buffer that is kept for the next batch, in bytes.
const keptBuffer = 4 << 20

func checkStdoutURL(url string) error {
	if url != "stdout:" {
		return errors.New("has something after stdout:, which takes nothing")
	}
	return nil
}

func openStdoutURL(_ context.Context, _ Config, deps Deps) (Destination, error) {
	if deps.Stdout == nil {
		return nil, errors.New("FLOWGATE_CONSUMER_URL: stdout: has no standard output here")
	}
	return NewStdout(deps.Stdout), nil
}

// NewStdout writes to w.
func NewStdout(w io.Writer) *Stdout {
	s := &Stdout{w: w, turn: make(chan struct{}, 1)}
	s.jobs.New = func() any { return &lines{done: make(chan written, 1)} }
	return s
}

// Deliver implements Destination. If ctx ends while a write hangs, that goes on and
// holds the next ones up: nothing can take back what it may have written.
func (s *Stdout) Deliver(ctx context.Context, batch []Delivery) []error {
	job := s.jobs.Get().(*lines)
	job.buf, job.ends = append(job.buf[:0], '\n'), job.ends[:0] // for a torn line
	for _, d := range batch {
		job.buf = appendLine(job.buf, d)
		job.ends = append(job.ends, len(job.buf))
	}
	select {
	case s.turn <- struct{}{}:
	case <-ctx.Done():
		return all(len(batch), Overloaded(0, fmt.Errorf("stdout: the write before it hangs; does its reader read? %w", ctx.Err())))
	}
	go s.write(job)
	select {
	case out := <-job.done:
		verdicts := job.verdicts(out)
		if cap(job.buf) <= keptBuffer {
			s.jobs.Put(job)
		}
		return verdicts
	case <-ctx.Done():
		return all(len(batch), Overloaded(0, fmt.Errorf("stdout: the write hangs; does its reader read? %w", ctx.Err())))
	}
}

// write makes the one Write, and gives the turn back when it ends.
func (s *Stdout) write(job *lines) {
	from := 1
	if s.torn {
		from = 0
	}
	n, err := s.w.Write(job.buf[from:])
	if n += from; n < len(job.buf) && err == nil {
		err = io.ErrShortWrite
	}
	if n > from {
		s.torn = job.buf[n-1] != '\n'
	}
	<-s.turn
	job.done <- written{n, err}
}

// verdicts: a line that went out whole is done.
func (l *lines) verdicts(out written) []error {
	verdicts := make([]error, len(l.ends))
	for i, end := range l.ends {
		if end > out.n {
			verdicts[i] = Overloaded(0, fmt.Errorf("stdout: %w", out.err))
		}
	}
	return verdicts
}

// Close ends nothing: the writer is its owner's.
func (s *Stdout) Close() error { return nil }
