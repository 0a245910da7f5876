package algorithms

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

var update = flag.Bool("update", false, "write docs/algorithms.md's figures and its drawing anew")

const docsPage, docsDrawing = "../../docs/algorithms.md", "../../docs/algorithms.svg"

// docsBlock is the part of the page between <!-- name --> and <!-- end -->.
func docsBlock(t *testing.T, page, name string) (before, block, after string) {
	t.Helper()
	begin := "<!-- " + name + " -->\n"
	before, rest, ok1 := strings.Cut(page, begin)
	block, after, ok2 := strings.Cut(rest, "<!-- end -->")
	if !ok1 || !ok2 {
		t.Fatalf("docs/algorithms.md has no %q … <!-- end -->", begin)
	}
	return before + begin, block, "<!-- end -->" + after
}

func readDocs(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil && !*update {
		t.Fatal(err)
	}
	return string(text)
}

// held puts a text in place, or says that it is not there.
func held(t *testing.T, path, have, want string) {
	t.Helper()
	switch {
	case have == want:
	case *update:
		if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	default:
		t.Errorf("%s is not what the code says; run go test ./internal/algorithms -run Docs -update\nwant\n%s", path, want)
	}
}

func writeBlock(t *testing.T, name, want string) {
	t.Helper()
	page := readDocs(t, docsPage)
	before, _, after := docsBlock(t, page, name)
	held(t, docsPage, page, before+want+after)
}

// docsRule is limit in a minute.
func docsRule(algorithm string, limit uint64) Rule {
	r := Rule{Algorithm: algorithm, Rate: Rate{limit, time.Minute}}
	if r.bucket() {
		r.Burst = limit
	}
	return r
}

// passes offers single requests at instants and gives those at which one passed.
func passes(l Limiter, at []int64) (passed []int64) {
	for _, now := range at {
		if d, _ := l.Take(now, 1); d.Allowed {
			passed = append(passed, now)
		}
	}
	return passed
}

// fullest is the most of the instants that lie in a window (t − width, t].
func fullest(at []int64, width int64) (most int) {
	first := 0
	for i := range at {
		for at[i]-at[first] >= width {
			first++
		}
		most = max(most, i-first+1)
	}
	return most
}

// docsArrivals are patterns that bring out the worst: floods that begin at all parts
// of a minute, alone and after another flood.
func docsArrivals() (patterns [][]int64) {
	const minute = int64(time.Minute)
	flood := func(at []int64, from, to int64) []int64 {
		for now := from; now < to; now += minute / 1000 {
			for range 3 {
				at = append(at, now)
			}
		}
		return at
	}
	for _, start := range []int64{0, 1, minute / 4, minute / 2, minute - minute/1000, minute - 1} {
		at := make([]int64, 240, 10_000) // each limit, twice within 1 ns
		for i := range at {
			at[i] = start + int64(i/120)
		}
		patterns = append(patterns, flood(slices.Clone(at), start+2, 3*minute))
		for _, again := range []int64{minute, minute + minute/2, 2 * minute} {
			if again > start {
				patterns = append(patterns, flood(slices.Clone(at), again, again+2*minute))
			}
		}
	}
	return patterns
}

// worst is the most that passes within a millisecond, and within a minute, of a limit
// of 100 a minute.
func worst(t *testing.T, algorithm string) (atOnce, inAPeriod int) {
	t.Helper()
	for _, at := range docsArrivals() {
		passed := passes(mustNew(t, docsRule(algorithm, 100)), at)
		atOnce = max(atOnce, fullest(passed, int64(time.Millisecond)))
		inAPeriod = max(inAPeriod, fullest(passed, int64(time.Minute)))
	}
	return atOnce, inAPeriod
}

// heldTooLong is the longest that one more request waits, at a limit of 1,000 a minute,
// beyond what an exact log of what passed would have it wait.
func heldTooLong(t *testing.T, algorithm string) (most time.Duration) {
	t.Helper()
	const minute = int64(time.Minute)
	try := func(at []int64, counts []int64) {
		l := mustNew(t, docsRule(algorithm, 1000))
		var passed []event
		for i, now := range at {
			if d, _ := l.Take(now, counts[i]); d.Allowed && counts[i] > 0 {
				passed = append(passed, event{now, uint64(counts[i])})
			}
			if d, _ := l.Peek(now, 1); !d.Allowed {
				// From the latest on: the first that makes it too many must leave.
				sum, exact := uint64(1), int64(0)
				for _, e := range slices.Backward(passed) {
					if sum += e.n; sum > 1000 {
						exact = max(0, e.at+minute-now)
						break
					}
				}
				most = max(most, d.RetryAfter-time.Duration(exact))
			}
		}
	}
	for _, p := range []int64{1, 2, 10, 100, 999, 1000} { // some, and the rest a period later
		for _, start := range []int64{0, minute / 3, minute - 1} {
			try([]int64{start, start + minute, start + minute}, []int64{p, 1000 - p, 1000})
		}
	}
	random := rand.New(rand.NewPCG(1, 2))
	for _, gap := range []int64{minute / 4000, minute / 1200, minute / 900, minute / 300} {
		var at, counts []int64
		now := int64(0)
		for range 2500 {
			now += random.Int64N(2 * gap)
			at, counts = append(at, now), append(counts, 1+random.Int64N(2))
		}
		try(at, counts)
	}
	return most
}

// bytesAKey measures what a key costs beyond its own bytes after so many requests.
func bytesAKey(t *testing.T, algorithm string) (ten, tenThousand float64) {
	t.Helper()
	rule := docsRule(algorithm, 10_000)
	rule.Rate.N = 10_000
	fill := func(keys, requests, further int) (few, many float64) {
		k, err := NewKeyed(Policy{Default: Rules{rule}}, 1_000_000)
		if err != nil {
			t.Fatal(err)
		}
		names := make([]string, keys)
		for i := range names {
			names[i] = fmt.Sprintf("tenant-%08d", i)
		}
		empty := heapInUse()
		take := func(from, to int) float64 {
			for _, name := range names {
				for i := from; i < to; i++ {
					if d, _, _ := k.Take(name, int64(i)*5e6, 1); !d.Allowed {
						t.Fatal(d)
					}
				}
			}
			return float64(heapInUse()-empty)/float64(keys) - float64(len(names[0]))
		}
		few = take(0, requests)
		many = take(requests, further)
		runtime.KeepAlive(k)
		return few, many
	}
	ten, _ = fill(20_000, 10, 10)
	few, many := fill(200, 10, 10_000)
	return ten, ten + max(0, many-few)
}

// The choice, in a word or two.
var docsChoice = []struct{ algorithm, choose string }{
	{TokenBucket, "the default: a steady rate, and short bursts"},
	{GCRA, "the same; for those who think in cells and intervals"},
	{LeakyBucket, "the same; for those who think of a level that drains"},
	{FixedWindow, "quotas of a calendar: so many an hour, then wait for the next"},
	{SlidingWindow, "“never more than n in any minute”, at bounded cost"},
	{SlidingWindowLog, "the same to the nanosecond, for small limits"},
	{SlidingWindowCounter, "about n in any minute, in three words a key"},
}

// The table at the top of the page: all its figures are measured here.
func TestDocsTable(t *testing.T) {
	page := readDocs(t, docsPage)
	_, have, _ := docsBlock(t, page, "table")
	var b strings.Builder
	b.WriteString("| algorithm | choose it for | most within 1 ms | most in any period | held too long, at most | bytes a key, 10 requests | 10,000 requests |\n|---|---|---|---|---|---|---|\n")
	for _, c := range docsChoice {
		atOnce, inAPeriod := worst(t, c.algorithm)
		hold := heldTooLong(t, c.algorithm)
		share := "0"
		switch {
		case hold > time.Minute*99/100:
			share = "1 period"
		case hold > 0:
			share = fmt.Sprintf("%.4f of a period", hold.Seconds()/60)
		}
		// The heap is not the same twice: a figure stands as long as it is within a tenth.
		row := regexp.MustCompile(`\n\| \x60` + c.algorithm + `\x60 .*\| ([0-9,]+) \| ([0-9,]+) \|\n`).FindStringSubmatch("\n" + have)
		ten, many := "?", "?"
		if row != nil {
			ten, many = row[1], row[2]
		}
		if measuresHeap && !testing.Short() {
			few, lots := bytesAKey(t, c.algorithm)
			ten, many = near(ten, few), near(many, lots)
		}
		fmt.Fprintf(&b, "| `%s` | %s | %d | %d | %s | %s | %s |\n", c.algorithm, c.choose, atOnce, inAPeriod, share, ten, many)
	}
	writeBlock(t, "table", b.String())
}

// near is the figure that stands, or the measured one if they are far apart.
func near(have string, measured float64) string {
	was, err := strconv.ParseFloat(strings.ReplaceAll(have, ",", ""), 64)
	if err == nil && was > measured*0.9-2 && was < measured*1.1+2 {
		return have
	}
	return thousands(int64(measured + 0.5))
}

func thousands(n int64) string {
	s := strconv.FormatInt(n, 10)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// The cases that everyone knows, with their numbers.
func TestDocsCases(t *testing.T) {
	const minute = int64(time.Minute)
	var b strings.Builder
	edge := mustNew(t, docsRule(FixedWindow, 100))
	before, _ := edge.Take(minute-1, 100)
	after, _ := edge.Take(minute, 100)
	if !before.Allowed || !after.Allowed {
		t.Errorf("around the edge: %+v, %+v", before, after)
	}
	for _, name := range Names() {
		l := mustNew(t, docsRule(name, 100))
		_, _ = l.Take(minute-1, 100)
		if d, _ := l.Take(minute, 1); d.Allowed != (name == FixedWindow) {
			t.Errorf("%s: %+v in the instant after 100", name, d)
		}
	}
	b.WriteString("- **The edge of a fixed window.** At 100 a minute, 100 requests in the last nanosecond of a minute and 100 in the first of the next all pass: 200 in 2 ns. Every other algorithm refuses the second hundred.\n")

	counter := mustNew(t, docsRule(SlidingWindowCounter, 100))
	if d, _ := counter.Take(minute/2, 80); !d.Allowed {
		t.Error(d)
	}
	if d, _ := counter.Take(minute+minute/4, 30); !d.Allowed || d.Remaining != 10 {
		t.Errorf("30 + 80 × 0.75: %+v", d)
	}
	all, _ := counter.Peek(minute+minute/4, 10)
	more, _ := counter.Peek(minute+minute/4, 11)
	if !all.Allowed || more.Allowed {
		t.Errorf("%+v, %+v", all, more)
	}
	fmt.Fprintf(&b, "- **The counter's estimate.** 80 in the minute before, 30 in this one, of which a quarter has passed: 30 + 80 × 0.75 = 90 of 100. So 10 more pass, the 11th waits %s.\n", more.RetryAfter)

	bucket := mustNew(t, docsRule(TokenBucket, 100))
	_, _ = bucket.Take(0, 100)
	d, _ := bucket.Peek(0, 1)
	whole, _ := bucket.Peek(0, 100)
	fmt.Fprintf(&b, "- **An empty bucket.** At 100 a minute with a burst of 100, all taken at once: one more passes after %s, a hundred more after %s. Every window lets them pass only after a minute.\n", d.RetryAfter, whole.RetryAfter)

	log := mustNew(t, docsRule(SlidingWindowLog, 100))
	_, _ = log.Take(0, 60)
	_, _ = log.Take(minute/3, 40)
	d, _ = log.Peek(minute/2, 1)
	fmt.Fprintf(&b, "- **A log's hint.** 60 requests at 0 s and 40 at 20 s: at 30 s one more is told to wait %s, until the 60 leave the window.\n", d.RetryAfter)

	q, err := NewLeakyQueue(Rate{100, time.Minute}, 10)
	if err != nil {
		t.Fatal(err)
	}
	var delays []string
	for {
		delay, d, _ := q.Offer(0, 1)
		if !d.Allowed {
			fmt.Fprintf(&b, "- **The queue.** At 100 a minute with room for 10, arrivals at one instant leave after %s, … %s; the 12th is refused and told to come back after %s.\n", strings.Join(delays[:3], ", "), delays[len(delays)-1], d.RetryAfter)
			break
		}
		delays = append(delays, delay.String())
	}
	if len(delays) != 11 {
		t.Errorf("%d of a queue of 10", len(delays))
	}
	writeBlock(t, "cases", b.String())
}
