// Package descriptors shares out what this process may have open at once. A
// connection costs whoever makes it nothing, while a store that cannot open a file is
// broken until the next start: so connections from outside get a share each, and the
// store, the database and the gateway's own keep the rest.
package descriptors

// most is where a share ends though the process may have more: memory is the bound
// then.
const most = 1 << 16

// Share is one of parts of the files and connections that may be open.
func Share(parts int) int {
	limit, ok := allowed()
	if !ok {
		return most
	}
	return share(limit, parts)
}

func share(limit uint64, parts int) int {
	return int(min(most, max(1, limit/uint64(parts))))
}
