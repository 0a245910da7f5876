package ingress

import (
	"context"
	"log/slog"
	"os"
	"sync/atomic"
	"time"
)

// fileLook is how often a file is looked at for changes.
const fileLook = time.Second

// watchedFiles are read again when one of them changes. What cannot be read leaves in
// force what was read before: a slip of the pen must not shut everybody out.
type watchedFiles struct {
	paths []string
	what  string // for the log
	load  func() error
	log   *slog.Logger

	seen, loaded []os.FileInfo
	// stale: what is in force is not what the files hold now.
	stale atomic.Bool
}

// open reads the files for the first time.
func (f *watchedFiles) open() error {
	f.loaded = f.stat()
	f.seen = f.loaded
	return f.load()
}

func (f *watchedFiles) stat() []os.FileInfo {
	infos := make([]os.FileInfo, len(f.paths))
	for i, path := range f.paths {
		infos[i], _ = os.Stat(path) // nil: it is not there
	}
	return infos
}

func same(a, b []os.FileInfo) bool {
	for i := range a {
		switch {
		case a[i] == nil || b[i] == nil:
			if a[i] != b[i] {
				return false
			}
		case !a[i].ModTime().Equal(b[i].ModTime()) || a[i].Size() != b[i].Size() || !os.SameFile(a[i], b[i]):
			return false
		}
	}
	return true
}

// watch looks until ctx ends.
func (f *watchedFiles) watch(ctx context.Context) {
	tick := time.NewTicker(fileLook)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			f.look()
		}
	}
}

// look reads the files if they changed since they were read, and not since the last
// look: one that is just being written is left to be finished.
func (f *watchedFiles) look() {
	now := f.stat()
	settled := same(now, f.seen)
	f.seen = now
	if !settled || same(now, f.loaded) {
		return
	}
	f.loaded = now
	if err := f.load(); err != nil {
		f.stale.Store(true)
		f.log.Error("the "+f.what+" changed and cannot be used; the former stay in force", "error", err)
		return
	}
	f.stale.Store(false)
	f.log.Info("the " + f.what + " were read anew")
}
