package trial

import (
	"context"
	"time"
)

// watch looks at the database and at the gateway ten times a second until ctx ends, and at
// what the gateway holds each second.
func (t *trial) watch(ctx context.Context) {
	ticker := time.NewTicker(sampling)
	defer ticker.Stop()
	for n := 0; ; n++ {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		s := Sample{At: time.Since(t.began), Database: t.database.Health(), Peak: t.database.Peak()}
		if s.At < 0 {
			continue
		}
		if t.mu.TryLock() { // else it is being killed or started
			t.look(ctx, &s, n%10 == 0)
			t.mu.Unlock()
		}
		if ctx.Err() == nil {
			t.side.Health = append(t.side.Health, s)
		}
	}
}

func (t *trial) look(ctx context.Context, s *Sample, thoroughly bool) {
	if !t.process.running() {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	status, err := t.process.status(ctx)
	if err != nil {
		return
	}
	s.Gateway, s.Depth, s.Level, s.Process = true, status.Depth.Total, status.Level, t.process.cmd.Process.Pid
	if status.Rate.Effective != nil {
		s.Rate = *status.Rate.Effective
	}
	if !thoroughly {
		return
	}
	if u, err := t.process.use(ctx); err == nil {
		s.RSS, s.Goroutines, s.Files = u.rss, u.goroutines, u.files
	}
	if t.s.Leaks {
		s.Keys = t.keys(ctx)
	}
}
