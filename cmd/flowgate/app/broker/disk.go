package broker

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// Disk compares what the streams of t may come to with the room on the disk below
// the embedded store: what is free, and what the store holds already. The error
// names both; nil if they fit, if the server is not embedded, or if the system
// does not tell.
//
// The server does not keep a stream from growing past the disk: it fails to store
// then, and the producer is refused.
func (b *Broker) Disk(t Topology) error {
	if b.server == nil {
		return nil
	}
	free, err := freeBytes(b.cfg.DataDir)
	if err != nil {
		return nil
	}
	need, held := t.Bytes(), heldBytes(b.opts.StoreDir)
	if need <= free+held {
		return nil
	}
	return fmt.Errorf("the streams may come to %d bytes, and the disk of %s has %d free beside the %d that they hold: lower FLOWGATE_BACKPRESSURE_MAX_BYTES (%d) or FLOWGATE_DLQ_MAX_BYTES (%d), or set FLOWGATE_DATA_DIR to a larger disk",
		need, b.cfg.DataDir, free, held, t.MaxBytes, t.DLQMaxBytes)
}

// Room returns an error if the disk below the embedded store has not even room for
// one of the largest messages; nil too if the server is not embedded, or if the system
// does not tell.
func (b *Broker) Room() error {
	if b.server == nil {
		return nil
	}
	least := int64(b.cfg.MaxPayload) + headroom
	if free, err := freeBytes(b.cfg.DataDir); err == nil && free < least {
		return fmt.Errorf("the disk of %s (FLOWGATE_DATA_DIR) has %d bytes free, fewer than the %d of one message: make room", b.cfg.DataDir, free, least)
	}
	return nil
}

// Writable writes a mebibyte to the data directory and removes it again; the error
// says why it cannot. nil if the server is not embedded.
func (b *Broker) Writable() error {
	if b.server == nil {
		return nil
	}
	f, err := os.CreateTemp(b.cfg.DataDir, ".probe-")
	if err != nil {
		return unwritable(b.cfg.DataDir, err)
	}
	_, err = f.Write(make([]byte, 1<<20))
	if err == nil {
		err = f.Sync()
	}
	err = errors.Join(err, f.Close(), os.Remove(f.Name()))
	if err != nil {
		return unwritable(b.cfg.DataDir, err)
	}
	return nil
}

// freeBytes is what this user may still write at path.
func freeBytes(path string) (int64, error) {
	var s syscall.Statfs_t
	if err := syscall.Statfs(path, &s); err != nil {
		return 0, err
	}
	return int64(s.Bavail) * int64(s.Bsize), nil
}

// heldBytes is the size of the files below dir. Files that go away during the walk
// count nothing.
func heldBytes(dir string) int64 {
	var sum int64
	_ = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil || d.IsDir() {
			return err
		}
		if info, err := d.Info(); err == nil {
			sum += info.Size()
		}
		return nil
	})
	return sum
}
