package invariants

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/flowgate/flowgate/internal/algorithms"
)

// clock writes an instant as a breach shows it.
func clock(ns int64) string { return time.Unix(0, ns).UTC().Format("15:04:05.000000") }

// NothingLost checks that acknowledged = delivered + dead-lettered + still waiting, that
// what was refused for good did not come, and that nothing came that nobody sent, or
// altered.
func (r *Record) NothingLost() Check {
	c := Check{Promise: "acknowledged = delivered + dead-lettered + still waiting"}
	acked, done := r.acknowledged(), r.delivered()
	var missing []string
	dead := 0
	for id := range acked {
		_, there := done[id]
		switch {
		case there:
		case r.DeadLetters[id]:
			dead++
		default:
			missing = append(missing, id)
		}
	}
	if uint64(len(missing)) > r.Waiting {
		slices.SortFunc(missing, func(a, b string) int { return cmp.Compare(acked[a], acked[b]) })
		for _, id := range missing {
			c.breach("%s was acknowledged at %s, and is neither delivered nor dead-lettered; %d wait, %d are missing", id, clock(acked[id]), r.Waiting, len(missing))
		}
	}
	open := map[string]bool{} // may have been stored
	sent := map[string]bool{}
	for _, m := range r.Messages {
		sent[m.ID] = true
	}
	for _, t := range r.Tries {
		if !finallyRefused[t.Told] {
			open[r.Messages[t.Message].ID] = true
		}
	}
	for _, d := range r.inOrder(func(d Arrived) int64 { return d.Started }) {
		switch {
		case !sent[d.ID]:
			c.breach("%s came at %s as sequence %d, and nobody sent it", d.ID, clock(d.Started), d.Seq)
		case d.Altered:
			c.breach("%s came at %s as sequence %d with another payload", d.ID, clock(d.Started), d.Seq)
		case !open[d.ID]:
			c.breach("%s came at %s as sequence %d, and each of its tries was refused", d.ID, clock(d.Started), d.Seq)
		}
	}
	c.Found = fmt.Sprintf("%d = %d + %d + %d", len(acked), len(acked)-dead-len(missing), dead, len(missing))
	return c
}

// finallyRefused are the NAKs after which nothing was stored. Not overloaded: it may be.
var finallyRefused = map[string]bool{
	"rate_limited": true, "tenant_backlog": true, "backlog": true, "deadline": true, "draining": true,
	"invalid": true, "forbidden": true, "too_large": true, "broker_full": true,
}

// unconfirmed is how long before a SIGKILL a delivery may have ended that the broker did not
// know of yet.
const unconfirmed = time.Second

// Once checks that no message is in the database twice but for those that were in flight when
// a gateway was killed, and those of which it could not be told that they are done.
func (r *Record) Once() Check {
	c := Check{Promise: "no id twice, but what was in flight at a SIGKILL or not heard of in time"}
	first := map[string]Arrived{}
	repeats, seen, unheard := 0, 0, 0
	for _, d := range r.inOrder(func(d Arrived) int64 { return d.Ended }) {
		if !d.Done {
			continue
		}
		seen++
		before, again := first[d.ID]
		if !again {
			first[d.ID] = d
			continue
		}
		repeats++
		if before.Unheard {
			unheard++
			continue
		}
		if !slices.ContainsFunc(r.Gaps, func(g Gap) bool {
			return g.Killed && before.Released <= g.From && g.From <= before.Ended+int64(unconfirmed) && d.Released >= g.From
		}) {
			c.breach("%s (sequence %d) was done at %s as attempt %d, which left at %s, and again at %s as attempt %d, and no gateway was killed in between",
				d.ID, d.Seq, clock(before.Ended), before.Attempt, clock(before.Released), clock(d.Ended), d.Attempt)
		}
	}
	c.Found = fmt.Sprintf("%d deliveries, %d repeats", seen, repeats)
	if unheard > 0 {
		c.Found += fmt.Sprintf(", %d of them of what was not heard of in time", unheard)
	}
	return c
}

// Departures are when deliveries were started. Of batches of so many, those that one process
// released at one reading of the clock are one.
func (r *Record) Departures(batch int) []algorithms.Departure {
	type reading struct {
		at      int64
		process int
	}
	var log []algorithms.Departure
	place := map[reading]int{}
	for _, d := range r.Deliveries {
		key := reading{d.Released, d.Process}
		if i, ok := place[key]; ok && log[i].N < uint64(batch) {
			log[i].N++
			continue
		}
		place[key] = len(log)
		log = append(log, algorithms.Departure{At: d.Released, N: 1})
	}
	return log
}

// Depths is the backlog over time: each change with the depth after it.
func (r *Record) Depths() []Level {
	var events []Level
	done := r.delivered()
	admitted := map[string]int64{}
	last := map[string]int64{} // the end of the last attempt
	for _, d := range r.Deliveries {
		admitted[d.ID], last[d.ID] = d.Admitted, max(last[d.ID], d.Ended)
	}
	for id, at := range r.acknowledged() {
		if _, ok := admitted[id]; !ok {
			admitted[id] = at
		}
	}
	for id, at := range admitted {
		events = append(events, Level{at, 1, id})
		if at, ok := done[id]; ok {
			events = append(events, Level{at, -1, id})
		} else if r.DeadLetters[id] {
			events = append(events, Level{last[id], -1, id})
		}
	}
	slices.SortFunc(events, func(a, b Level) int {
		return cmp.Or(cmp.Compare(a.At, b.At), cmp.Compare(a.Depth, b.Depth), cmp.Compare(a.ID, b.ID))
	})
	depth := 0
	for i := range events {
		depth += events[i].Depth
		events[i].Depth = depth
	}
	return events
}

// Level is how deep the backlog was from an instant on, and who changed it.
type Level struct {
	At    int64
	Depth int
	ID    string
}

// Deepest checks that the backlog never held more than MAX.
func (r *Record) Deepest(most uint64) Check {
	c := Check{Promise: fmt.Sprintf("the backlog never holds more than MAX = %d", most)}
	deepest := 0
	for _, l := range r.Depths() {
		deepest = max(deepest, l.Depth)
		if l.Depth > int(most) {
			c.breach("%d were waiting at %s, when %s came", l.Depth, clock(l.At), l.ID)
		}
	}
	c.Found = fmt.Sprintf("at most %d", deepest)
	return c
}

// Order checks that a tenant's messages go in stream order: first attempts in any case, and
// if strict all of them, one at a time. What a gateway did that was killed says nothing of
// what the next one does.
func (r *Record) Order(strict bool) Check {
	c := Check{Promise: "a tenant's first attempts go in stream order"}
	if strict {
		c.Promise = "a tenant's messages go in stream order, one at a time"
	}
	type line struct {
		tenant  string
		process int
	}
	last := map[line]Arrived{}
	seen := map[string]bool{}
	pairs := 0
	for _, d := range r.inOrder(func(d Arrived) int64 { return d.Released }) {
		key := line{d.Tenant, d.Process}
		id := fmt.Sprint(d.Process, " ", d.ID)
		first := !seen[id]
		seen[id] = true
		if !strict && (d.Attempt > 1 || !first) {
			continue
		}
		before, ok := last[key]
		last[key] = d
		if !ok {
			continue
		}
		pairs++
		switch {
		case d.Seq < before.Seq:
			c.breach("tenant %s: sequence %d left at %s, after %d at %s", d.Tenant, d.Seq, clock(d.Released), before.Seq, clock(before.Released))
		case strict && d.Released < before.Ended:
			c.breach("tenant %s: sequence %d left at %s, while %d was under way until %s", d.Tenant, d.Seq, clock(d.Released), before.Seq, clock(before.Ended))
		case strict && d.Seq == before.Seq && before.Done:
			c.breach("tenant %s: sequence %d left again at %s after it was done", d.Tenant, d.Seq, clock(d.Released))
		}
	}
	c.Found = fmt.Sprintf("%d pairs of one tenant", pairs)
	return c
}

// Answered checks that every try that asked for an answer got one in time. While no gateway
// or no broker was there, and right after that, it may be told so, or nothing.
func (r *Record) Answered(within time.Duration) Check {
	c := Check{Promise: fmt.Sprintf("every publish is answered within %s while a gateway lives", within)}
	asked, slowest, excused := 0, time.Duration(0), 0
	tries := slices.Clone(r.Tries)
	slices.SortStableFunc(tries, func(a, b Try) int { return cmp.Compare(a.Sent, b.Sent) })
	for _, t := range tries {
		if t.Told == NotAsked {
			continue
		}
		asked++
		// A try that was sent shortly before a gap may be answered by nobody, and one after it
		// has to wait until the client has reconnected.
		away := slices.ContainsFunc(r.Gaps, func(g Gap) bool {
			return t.Sent+int64(within) >= g.From && (g.To == 0 || t.Sent <= g.To+int64(within))
		})
		took := time.Duration(t.Answered - t.Sent)
		late := t.Told == NoAnswer || t.Told == Nobody || took > within
		switch {
		case late && away:
			excused++
		case t.Told == NoAnswer || t.Told == Nobody:
			c.breach("%s, published at %s: %s", r.Messages[t.Message].ID, clock(t.Sent), t.Told)
		case late:
			c.breach("%s, published at %s: %s after %s", r.Messages[t.Message].ID, clock(t.Sent), t.Told, took)
		default:
			slowest = max(slowest, took)
		}
	}
	c.Found = fmt.Sprintf("%d publishes, the slowest answer after %s", asked, slowest.Round(time.Millisecond))
	if excused > 0 {
		c.Found += fmt.Sprintf("; %d while nobody was there", excused)
	}
	return c
}
