package history

import (
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestRing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		most := rapid.IntRange(1, 9).Draw(t, "most")
		r := NewRing(most)
		var want []int64
		for i := range rapid.IntRange(0, 30).Draw(t, "n") {
			r.Add(Sample{At: int64(i)})
			want = append(want, int64(i))
			want = want[max(0, len(want)-most):]
		}
		var got []int64
		for _, s := range r.All() {
			got = append(got, s.At)
		}
		newest, ok := r.Newest()
		if !slices.Equal(got, want) || ok != (len(want) > 0) || ok && newest.At != want[len(want)-1] {
			t.Fatalf("%v, newest %d %v; want %v", got, newest.At, ok, want)
		}
	})
}

// of is what acme sent.
func of(tr *Traffic, now int64) (acme TenantTraffic) {
	tr.Each(now, func(tenant string, seen TenantTraffic) {
		if tenant == "acme" {
			acme = seen
		}
	})
	return acme
}

func TestTrafficRates(t *testing.T) {
	const second = int64(time.Second)
	tr := NewTraffic()
	start := 1000*second + second/2
	for i := range int64(300) { // 10 admitted and 5 refused a second, for half a minute
		now := start + i*second/10
		tr.Admitted(now, "acme")
		if i%2 == 0 {
			tr.Refused(now, "acme", []string{"backlog", "rate_limited"}[i/2%2])
		}
		if i == 4 { // too early to tell: as if in a second
			if a := of(tr, now); a.Admitted != 5 || a.Refused != 3 {
				t.Errorf("after half a second %+v", a)
			}
		}
	}
	end := start + 30*second
	if a := of(tr, end); a.Admitted < 9.5 || a.Admitted > 10.5 || a.Refused < 4.7 || a.Refused > 5.3 || a.RefusedTotal != 150 || a.LastReason != "rate_limited" {
		t.Errorf("%+v", a)
	}
	if a := of(tr, end+12*second); a != (TenantTraffic{RefusedTotal: 150, LastReason: "rate_limited"}) {
		t.Errorf("12 s after the last %+v", a)
	}
}

// Who was refused since the last look, the most first.
func TestMostRefused(t *testing.T) {
	tr := NewTraffic()
	for i, name := range []string{"a", "b", "b", "c", "c", "c", "d"} {
		tr.Refused(int64(i), name, "backlog")
	}
	tr.Refused(7, "c", "deadline")
	if got, want := tr.MostRefused(3), []RefusedTenant{{"c", 4, "deadline"}, {"b", 2, "backlog"}, {"a", 1, "backlog"}}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	tr.Refused(8, "b", "backlog")
	if got, want := tr.MostRefused(3), []RefusedTenant{{"b", 1, "backlog"}}; !slices.Equal(got, want) {
		t.Errorf("a second later %v, want %v", got, want)
	}
	if got := tr.MostRefused(3); len(got) != 0 {
		t.Errorf("of nothing %v", got)
	}
	for i := range 3 * trafficTenants { // nobody looks
		tr.Refused(int64(i), strconv.Itoa(i), "backlog")
	}
	if got := len(tr.refused); got > trafficTenants {
		t.Errorf("%d are kept for whoever looks", got)
	}
}

// Those seen last are remembered, and no more than twice as many.
func TestTenantsAreBounded(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		most := rapid.IntRange(1, 8).Draw(t, "most")
		r := newRecent[int](most)
		var seen []string // the latest last
		for range rapid.IntRange(0, 60).Draw(t, "touches") {
			name := strconv.Itoa(rapid.IntRange(0, 12).Draw(t, "name"))
			*r.touch(name)++
			seen = append(slices.DeleteFunc(seen, func(s string) bool { return s == name }), name)
			n := 0
			for tenant, count := range r.all() {
				if n++; *count == 0 || r.find(tenant) != count {
					t.Fatalf("%s is not found", tenant)
				}
			}
			if n > 2*most {
				t.Fatalf("%d of at most %d", n, 2*most)
			}
			for _, s := range seen[max(0, len(seen)-most):] {
				if r.find(s) == nil {
					t.Fatalf("%s is forgotten; the last are %v", s, seen)
				}
			}
		}
	})
}

func TestRefusals(t *testing.T) {
	r := NewRefusals()
	if r.Last("acme", 5) != nil || len(r.Last("", 5)) != 0 {
		t.Error("refusals of nobody")
	}
	for i := range 50 {
		r.Add(Refusal{At: int64(i), Tenant: []string{"acme", "globex", ""}[i%3], ID: "order-" + strconv.Itoa(i), Reason: "backlog", Depth: uint64(i)})
		for _, c := range []struct {
			tenant      string
			newest, gap int
		}{{"acme", i - i%3, 3}, {"globex", i - (i+2)%3, 3}, {"", i, 1}} {
			for n, f := range r.Last(c.tenant, 100) {
				at := c.newest - n*c.gap
				if f.At != int64(at) || f.ID != "order-"+strconv.Itoa(at) || c.tenant != "" && f.Tenant != c.tenant {
					t.Fatalf("after %d, %q: number %d is %+v, want that of %d", i, c.tenant, n, f, at)
				}
			}
		}
	}
	if n := len(r.Last("acme", 100)); n != 17 {
		t.Errorf("%d of acme, there were 17", n)
	}
	if n := len(r.Last("", 100)); n != keptRefusals {
		t.Errorf("%d over all, want %d", n, keptRefusals)
	}
	if n := len(r.Last("", 3)); n != 3 {
		t.Errorf("%d, asked for 3", n)
	}
}

// However many names are made up, memory is bounded: with names and ids of the longest
// kind below 32 MB.
func TestMemoryIsBounded(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	r, tr := NewRefusals(), NewTraffic()
	id := string(make([]byte, 255))
	for i := range 100_000 {
		name := fmt.Sprintf("%064d", i)
		for range 20 {
			r.Add(Refusal{Tenant: name, ID: id, Reason: "backlog"})
		}
		tr.Refused(int64(i), name, "backlog")
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	mib := float64(after.HeapAlloc-before.HeapAlloc) / (1 << 20)
	t.Logf("100,000 tenants refused 20 times each, ids of 255 bytes: %.1f MiB", mib)
	if mib > 32 {
		t.Errorf("%.1f MiB", mib)
	}
	runtime.KeepAlive(r)
	runtime.KeepAlive(tr)
}

// What a decision costs beside the rest: the door makes some 400,000 a second.
func BenchmarkAdmitted(b *testing.B) {
	tr := NewTraffic()
	names := tenantNames(10_000)
	for i := 0; b.Loop(); i++ {
		tr.Admitted(int64(i)*2500, names[i%len(names)])
	}
}

func BenchmarkRefused(b *testing.B) {
	for _, n := range []int{1, 1000, 10_000} {
		b.Run(fmt.Sprintf("tenants=%d", n), func(b *testing.B) {
			b.ReportAllocs()
			r, tr := NewRefusals(), NewTraffic()
			names := tenantNames(n)
			for i := 0; b.Loop(); i++ {
				name := names[i%n]
				tr.Refused(int64(i)*2500, name, "backlog")
				r.Add(Refusal{At: int64(i) * 2500, Tenant: name, ID: "order-4711", Reason: "backlog", Transport: "nats", Depth: 10_000, Wait: time.Second, Enforced: true})
			}
		})
	}
}

func tenantNames(n int) []string {
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf("tenant-%05d", i)
	}
	return names
}
