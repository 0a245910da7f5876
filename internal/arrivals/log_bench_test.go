package arrivals

import (
	"strconv"
	"testing"
)

// BenchmarkAdd is what the front door pays for a message while it is recorded.
func BenchmarkAdd(b *testing.B) {
	ids := make([]string, 100_000)
	for i := range ids {
		ids[i] = "order-" + strconv.Itoa(i)
	}
	for name, id := range map[string]func(i int) string{"with an id": func(i int) string { return ids[i%len(ids)] }, "without": func(int) string { return "" }} {
		b.Run(name, func(b *testing.B) {
			l := NewLog(0)
			var spare []byte
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				l.Add(int64(i)*10_000, "acme", "orders.new", id(i), 256)
				if i%50_000 == 0 { // as often as it is sent, or more
					spare = l.Take(int64(i)*10_000, spare)
				}
			}
		})
	}
}
