package invariants

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/flowgate/flowgate/internal/algorithms"
)

// Check is one promise and whether it was kept.
type Check struct {
	Promise string
	// Found says what was looked at, with figures.
	Found string
	// Broken lists up to ten breaches; none: it was kept.
	Broken []string
}

// OK reports whether the promise was kept.
func (c Check) OK() bool { return len(c.Broken) == 0 }

func (c *Check) breach(format string, args ...any) {
	if len(c.Broken) < 10 {
		c.Broken = append(c.Broken, fmt.Sprintf(format, args...))
	}
}

// Delivered checks that every acknowledged message stands in the table exactly
// once with its own payload. The table's key makes a second row impossible under
// one id; a second one under another id would be a row that nobody sent.
func (l *Ledger) Delivered(rows []Row) Check {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := Check{Promise: "every acknowledged message is in the database once, with its own payload"}
	seen := map[string]int{}
	for _, r := range rows {
		seen[r.ID]++
		e := l.entries[r.ID]
		switch {
		case e == nil:
			c.breach("row %s was sent by nobody", r.ID)
		case seen[r.ID] > 1:
			c.breach("row %s is there %d times", r.ID, seen[r.ID])
		case e.payload != string(r.Payload):
			c.breach("row %s has another payload", r.ID)
		}
	}
	acked := 0
	for id, e := range l.entries {
		if !e.acked {
			continue
		}
		acked++
		if seen[id] == 0 {
			c.breach("%s was acknowledged and is not there", id)
		}
	}
	c.Found = fmt.Sprintf("%d acknowledged, %d rows", acked, len(rows))
	return c
}

// NotDelivered checks that nothing stands in the table whose every try was
// refused.
func (l *Ledger) NotDelivered(rows []Row) Check {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := Check{Promise: "nothing that was refused is in the database"}
	refused := 0
	for _, e := range l.entries {
		if !e.acked && !e.unsure {
			refused++
		}
	}
	for _, r := range rows {
		if e := l.entries[r.ID]; e != nil && !e.acked && !e.unsure {
			c.breach("row %s was refused", r.ID)
		}
	}
	c.Found = fmt.Sprintf("%d messages refused for good", refused)
	return c
}

// Resolution is how exactly the database keeps times.
const Resolution = time.Microsecond

// Rate checks that no window of the departures breaks the promise.
func Rate(log []algorithms.Departure, rate algorithms.Rate, tolerance time.Duration) Check {
	c := Check{Promise: fmt.Sprintf("no window of released_at holds more than %s allows", rate)}
	if len(log) == 0 {
		c.breach("nothing was delivered")
		return c
	}
	e := algorithms.CheckRate(log, rate, tolerance+Resolution)
	c.Found = fmt.Sprintf("%d deliveries; the fullest window has %d in %s, allowed %.1f",
		len(log), e.Count, time.Duration(e.To-e.From).Round(time.Millisecond), e.Allowed)
	if e.Broken {
		c.breach("%d departures in %s", e.Count, time.Duration(e.To-e.From))
	}
	return c
}

// Departures are the rows' times of release.
func Departures(rows []Row) []algorithms.Departure {
	log := make([]algorithms.Departure, len(rows))
	for i, r := range rows {
		log[i] = algorithms.Departure{At: r.ReleasedAt.UnixNano(), N: 1}
	}
	return log
}

// Depth checks that at no instant more messages were admitted and not yet written
// than most, by the database's own times.
func Depth(rows []Row, most uint64) Check {
	c := Check{Promise: fmt.Sprintf("the backlog never held more than MAX = %d", most)}
	type event struct {
		at    time.Time
		delta int
	}
	var events []event
	for _, r := range rows {
		events = append(events, event{r.AdmittedAt, 1}, event{r.WrittenAt, -1})
	}
	slices.SortFunc(events, func(a, b event) int {
		if n := a.at.Compare(b.at); n != 0 {
			return n
		}
		return a.delta - b.delta
	})
	depth, deepest := 0, 0
	for _, e := range events {
		depth += e.delta
		deepest = max(deepest, depth)
	}
	c.Found = fmt.Sprintf("at most %d", deepest)
	if deepest > int(most) {
		c.breach("%d messages were waiting at once", deepest)
	}
	return c
}

// Report prints checks a line each, breaches below.
func Report(checks []Check) string {
	var b strings.Builder
	for _, c := range checks {
		mark := "ok  "
		if !c.OK() {
			mark = "FAIL"
		}
		fmt.Fprintf(&b, "  %s  %s: %s\n", mark, c.Promise, c.Found)
		for _, line := range c.Broken {
			fmt.Fprintf(&b, "          %s\n", line)
		}
	}
	return b.String()
}
