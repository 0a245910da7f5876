package ingress

import (
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/flowgate/flowgate/internal/bubble"
)

// watchedText is a watched file whose reading can be made to fail.
type watchedText struct {
	watchedFiles
	log  bubble.Log
	text string
	fail error
}

func watchText(t *testing.T, path string) *watchedText {
	t.Helper()
	w := &watchedText{}
	w.watchedFiles = watchedFiles{paths: []string{path}, what: "words", log: w.log.Logger(slog.LevelInfo), load: func() error {
		if w.fail != nil {
			return w.fail
		}
		text, err := os.ReadFile(path)
		if err == nil {
			w.text = string(text)
		}
		return err
	}}
	if err := w.open(); err != nil {
		t.Fatal(err)
	}
	return w
}

func (w *watchedText) looks(n int) {
	for range n {
		w.look()
	}
}

// A file that could not be read is read as soon as it can be: granted rights and free
// descriptors change neither its time nor its size.
func TestWatchedFileUnreadable(t *testing.T) {
	path := filepath.Join(t.TempDir(), "words")
	writeKeys(t, path, "one")
	w := watchText(t, path)
	writeKeys(t, path, "two")
	w.fail = &fs.PathError{Op: "open", Path: path, Err: fs.ErrPermission}
	w.looks(5)
	if n := strings.Count(w.log.String(), "level=ERROR"); n != 1 || !w.stale.Load() || w.text != "one" {
		t.Fatalf("%d errors, stale %v, %q in force:\n%s", n, w.stale.Load(), w.text, w.log.String())
	}
	w.fail = &fs.PathError{Op: "open", Path: path, Err: syscall.EMFILE}
	w.looks(2)
	if n := strings.Count(w.log.String(), "level=ERROR"); n != 2 {
		t.Errorf("%d errors, want the other one too:\n%s", n, w.log.String())
	}
	w.fail = nil
	w.looks(1)
	if w.stale.Load() || w.text != "two" {
		t.Errorf("readable again: stale %v, %q in force", w.stale.Load(), w.text)
	}
}

// What a file holds cannot change without its showing, so a wrong one is not parsed
// again and again.
func TestWatchedFileWrong(t *testing.T) {
	path := filepath.Join(t.TempDir(), "words")
	writeKeys(t, path, "one")
	w := watchText(t, path)
	writeKeys(t, path, "two")
	w.fail = errors.New("two words")
	w.looks(2)
	w.fail = nil
	w.looks(3)
	if !w.stale.Load() || w.text != "one" {
		t.Errorf("stale %v, %q in force", w.stale.Load(), w.text)
	}
	writeKeys(t, path, "three")
	w.looks(2)
	if w.stale.Load() || w.text != "three" {
		t.Errorf("mended: stale %v, %q in force", w.stale.Load(), w.text)
	}
}

// A pipe in a file's place is not opened: that would last until somebody writes to it.
func TestWatchedFilePipe(t *testing.T) {
	path := filepath.Join(t.TempDir(), "words")
	writeKeys(t, path, "one")
	w := watchText(t, path)
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	w.looks(3)
	if n := strings.Count(w.log.String(), "is not a regular file"); n != 1 || !w.stale.Load() {
		t.Errorf("%d errors, stale %v:\n%s", n, w.stale.Load(), w.log.String())
	}
	writeKeys(t, path, "two")
	w.looks(2)
	if w.stale.Load() || w.text != "two" {
		t.Errorf("a file again: stale %v, %q in force", w.stale.Load(), w.text)
	}
}
