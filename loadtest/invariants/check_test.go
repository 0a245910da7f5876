package invariants

import (
	"strings"
	"testing"
	"time"

	"github.com/flowgate/flowgate/internal/algorithms"
)

// The checks must find what they are there to find.
func TestChecksFindBreaches(t *testing.T) {
	ledger := func() *Ledger {
		l := NewLedger()
		for _, id := range []string{"1", "2", "3", "4"} {
			l.Sent("acme", id, "payload "+id)
		}
		l.Acked("acme", "1")
		l.Acked("acme", "2")
		l.Refused("acme", "rate_limited")
		l.Unsure("acme", "4")
		return l
	}
	row := func(id, payload string) Row { return Row{ID: "acme/" + id, Payload: []byte(payload)} }
	one, two, four := row("1", "payload 1"), row("2", "payload 2"), row("4", "payload 4")
	for _, c := range []struct {
		name                  string
		rows                  []Row
		delivered, notRefused string // the breach; empty: none
	}{
		{"all right", []Row{one, two}, "", ""},
		{"what is unsure may be there", []Row{one, two, four}, "", ""},
		{"missing", []Row{one}, "acme/2 was acknowledged and is not there", ""},
		{"twice", []Row{one, two, two}, "acme/2 is there 2 times", ""},
		{"another payload", []Row{one, row("2", "payload 1")}, "acme/2 has another payload", ""},
		{"sent by nobody", []Row{one, two, row("9", "x")}, "acme/9 was sent by nobody", ""},
		{"refused", []Row{one, two, row("3", "payload 3")}, "", "acme/3 was refused"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := ledger().Delivered(c.rows); got.OK() != (c.delivered == "") || !strings.Contains(strings.Join(got.Broken, ";"), c.delivered) {
				t.Errorf("delivered: %v, want %q", got.Broken, c.delivered)
			}
			if got := ledger().NotDelivered(c.rows); got.OK() != (c.notRefused == "") || !strings.Contains(strings.Join(got.Broken, ";"), c.notRefused) {
				t.Errorf("refused: %v, want %q", got.Broken, c.notRefused)
			}
		})
	}
}

func TestRateAndDepth(t *testing.T) {
	start := time.Unix(1_800_000_000, 0)
	var rows []Row
	for i := range 100 {
		rows = append(rows, Row{
			AdmittedAt: start, ReleasedAt: start.Add(time.Duration(i) * 5 * time.Millisecond),
			WrittenAt: start.Add(time.Duration(i+1) * 5 * time.Millisecond),
		})
	}
	rate := algorithms.Rate{N: 200, Per: time.Second}
	if c := Rate(Departures(rows), rate, 0); !c.OK() {
		t.Errorf("%v", c.Broken)
	}
	rows[50].ReleasedAt = rows[49].ReleasedAt.Add(time.Millisecond)
	if c := Rate(Departures(rows), rate, 0); c.OK() {
		t.Error("a departure 4 ms early was not found")
	}
	if c := Rate(Departures(rows), rate, 5*time.Millisecond); !c.OK() {
		t.Errorf("within the tolerance: %v", c.Broken)
	}
	if c := Rate(nil, rate, 0); c.OK() {
		t.Error("an empty log kept the promise")
	}
	if c := Depth(rows, 100); !c.OK() {
		t.Errorf("%v", c.Broken)
	}
	if c := Depth(rows, 99); c.OK() {
		t.Error("100 waiting at once with a MAX of 99 were not found")
	}
}
