package ingress

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
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
	// unread: what failed last was to read the files, not what they hold. said is that
	// error.
	unread bool
	said   string
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
// look: one that is just being written is left to be finished. What could not be read
// is tried again at each look: that rights were granted or a descriptor became free
// does not show in the file.
func (f *watchedFiles) look() {
	now := f.stat()
	settled := same(now, f.seen)
	f.seen = now
	again := same(now, f.loaded)
	if !settled || again && !f.unread {
		return
	}
	f.loaded = now
	err := f.regular(now)
	if err == nil {
		err = f.load()
	}
	if err == nil {
		f.unread, f.said = false, ""
		f.stale.Store(false)
		f.log.Info("the " + f.what + " were read anew")
		return
	}
	_, f.unread = errors.AsType[*fs.PathError](err)
	f.stale.Store(true)
	if again && err.Error() == f.said {
		return
	}
	f.said = err.Error()
	f.log.Error("the "+f.what+" changed and cannot be used; the former stay in force", "error", err)
}

// regular refuses what is there and is no file: to open a pipe in its place waits for
// somebody to write to it, for ever, and nothing would be read nor shut down again.
func (f *watchedFiles) regular(infos []os.FileInfo) error {
	for i, info := range infos {
		if info != nil && !info.Mode().IsRegular() {
			return fmt.Errorf("%s is not a regular file", f.paths[i])
		}
	}
	return nil
}
