package descriptors

import "testing"

func TestShare(t *testing.T) {
	for limit, want := range map[uint64]int{0: 1, 3: 1, 1024: 256, 1 << 18: 1 << 16, 1 << 63: 1 << 16, ^uint64(0): 1 << 16} {
		if got := share(limit, 4); got != want {
			t.Errorf("a quarter of %d is %d, want %d", limit, got, want)
		}
	}
	if got := Share(4); got < 1 || got > most {
		t.Errorf("a quarter of this process's is %d", got)
	}
}
