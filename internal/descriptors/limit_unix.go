//go:build unix

package descriptors

import "syscall"

// allowed is how many files this process may have open; false if it is not told.
func allowed() (uint64, bool) {
	var limit syscall.Rlimit
	err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit)
	return uint64(limit.Cur), err == nil
}
