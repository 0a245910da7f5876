package trial

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/flowgate/flowgate/internal/arrivals"
)

// recording takes down what the gateway itself records of what comes to it, as
// flowgate record does.
type recording struct {
	began time.Time // when it was begun, a round trip or less before
	stop  context.CancelFunc
	all   sync.WaitGroup
	text  bytes.Buffer
	err   error
}

// startRecording returns once all that comes is recorded.
func (t *trial) startRecording(ctx context.Context) (*recording, error) {
	ctx, cancel := context.WithCancel(ctx)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+t.process.admin+"/api/v1/arrivals", nil)
	if err != nil {
		cancel()
		return nil, err
	}
	r := &recording{began: time.Now(), stop: cancel}
	answer, err := http.DefaultClient.Do(req)
	if err != nil {
		cancel()
		return nil, err
	}
	if answer.StatusCode != http.StatusOK {
		defer cancel()
		return nil, errors.Join(fmt.Errorf("the gateway records nothing: %s", answer.Status), answer.Body.Close())
	}
	head := make([]byte, len(arrivals.AppendHead(nil)))
	if _, err := io.ReadFull(answer.Body, head); err != nil {
		defer cancel()
		return nil, errors.Join(err, answer.Body.Close())
	}
	r.text.Write(head)
	r.all.Go(func() {
		defer func() { _ = answer.Body.Close() }()
		if _, err := io.Copy(&r.text, answer.Body); ctx.Err() == nil {
			r.err = errors.Join(errors.New("the recording ended before the load did"), err)
		}
	})
	return r, nil
}

// end gives what was recorded, by the trial's clock.
func (r *recording) end(began time.Time) (*arrivals.Recording, error) {
	// What came last is sent within a second.
	time.Sleep(1100 * time.Millisecond)
	r.stop()
	r.all.Wait()
	if r.err != nil {
		return nil, r.err
	}
	rec, err := arrivals.ReadRecording(&r.text)
	if err != nil {
		return nil, fmt.Errorf("the gateway's recording: %w", err)
	}
	for i := range rec.Tries {
		rec.Tries[i].At = max(0, rec.Tries[i].At-began.Sub(r.began))
	}
	return rec, nil
}
