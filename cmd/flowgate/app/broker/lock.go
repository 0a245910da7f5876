package broker

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// lockName is the file in the data directory that its user holds locked. It stays
// there unlocked: to remove it would let two processes lock two files of one name.
const lockName = "flowgate.lock"

// lockDir makes the data directory and takes its lock. The kernel drops the lock
// with the process, however that ends; the process id in the file is only for the
// message to the next one.
func lockDir(dir string) (*os.File, error) {
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return nil, fmt.Errorf("data directory %s cannot be made: %w; set FLOWGATE_DATA_DIR to a directory that can be written", dir, err)
	}
	path := filepath.Join(dir, lockName)
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o640)
	if err != nil {
		return nil, unwritable(dir, err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		_ = f.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, fmt.Errorf("data directory %s is in use by another flowgate, process %s; stop that one, or set FLOWGATE_DATA_DIR to another directory", dir, lockHolder(path))
		}
		return nil, fmt.Errorf("data directory %s: lock %s: %w", dir, path, err)
	}
	_, err = f.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
	if err == nil {
		err = f.Truncate(int64(len(strconv.Itoa(os.Getpid())) + 1))
	}
	if err != nil {
		_ = f.Close()
		return nil, unwritable(dir, err)
	}
	return f, nil
}

func unwritable(dir string, err error) error {
	return fmt.Errorf("data directory %s cannot be written: %w; change that, or set FLOWGATE_DATA_DIR to another directory", dir, err)
}

// lockHolder is the process id that the holder wrote.
func lockHolder(path string) string {
	text, err := os.ReadFile(path)
	if pid := strings.TrimSpace(string(text)); err == nil && pid != "" {
		return pid
	}
	return "unknown"
}
