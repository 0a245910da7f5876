package scenario

import (
	"strings"
	"testing"
	"time"
)

const right = `
shows: It works.
for: 20s
broker: own
arrivals:
  seed: 1
  groups:
    - {tenant: a, phases: [{for: 10s, rate: 5/s}, {for: 10s, rate: 50/s, burst: 30}]}
producers:
  - {tenant: "a*", via: http, refused: 200ms}
  - {tenant: "*", via: no reply, refused: forget}
gateway:
  FLOWGATE_SHAPER_RATE: 100/s
database: {latency: 20ms, knee: 8}
faults:
  - {at: 5s, what: broker stops}
  - {at: 8s, what: broker starts}
promises: [once, rate]
`

func TestParse(t *testing.T) {
	s, err := Parse("right", []byte(right))
	if err != nil {
		t.Fatal(err)
	}
	if p, i := s.Producer("abc"); i != 0 || p.Via != HTTP || p.Refused != (Reaction{After: 200 * time.Millisecond}) {
		t.Errorf("%d, %+v", i, p)
	}
	if p, i := s.Producer("other"); i != 1 || p.Via != NoReply || !p.Refused.Forget {
		t.Errorf("%d, %+v", i, p)
	}
	if !s.Checks(Rate) || s.Checks(Depth) {
		t.Error("once and rate are checked, and no other")
	}
	if batched, err := Parse("batched", []byte(strings.Replace(right, "FLOWGATE_SHAPER_RATE: 100/s", "FLOWGATE_CONSUMER_BATCH: 20", 1))); err != nil || batched.Gateway["FLOWGATE_CONSUMER_BATCH"] != "20" {
		t.Errorf("%+v, %v", batched, err)
	}
	half := s.Scaled(10 * time.Second)
	if half.For != Duration(10*time.Second) || half.Faults[1].At != Duration(4*time.Second) || half.Arrivals.Groups[0].Phases[1].For != 5*time.Second || half.Arrivals.Groups[0].Phases[1].Burst != 15 {
		t.Errorf("%+v", half)
	}
	if s.Faults[1].At != Duration(8*time.Second) || s.Arrivals.Groups[0].Phases[1].Burst != 30 {
		t.Error("the scenario itself was changed")
	}
}

func TestParseRefuses(t *testing.T) {
	for _, c := range []struct{ old, wrong, says string }{
		{"shows: It works.", "", "shows is empty"}, {"for: 20s", "for: 20", `"20" is not a duration`}, {"for: 20s", "fro: 20s", "fro not found"},
		{"broker: own", "broker: other", `broker "other"`}, {"broker: own", "", "needs broker: own"}, {"via: http", "via: smtp", `via "smtp"`},
		{"refused: forget", "refused: never", "obey, forget, or the time"}, {"FLOWGATE_SHAPER_RATE: 100/s", "SHAPER_RATE: 100/s", "SHAPER_RATE is none"},
		{"FLOWGATE_SHAPER_RATE: 100/s", "FLOWGATE_CONSUMER_URL: 'stdout:'", "set by the load test"}, {"what: broker stops", "what: cat sleeps", `fault "cat sleeps"`},
		{"seed: 1", "sead: 1", `line 6: a pattern has no "sead"; it has seed, groups`}, {"tenant: a, phases", "tenat: a, phases", `line 8: a group has no "tenat"`},
		{"rate: 50/s, burst: 30", "rate: 50/s, bust: 30", `line 8: a phase has no "bust"`}, {"FLOWGATE_SHAPER_RATE: 100/s", "FLOWGATE_ADMIN_LISTEN: ':1'", "FLOWGATE_ADMIN_LISTEN is set by the load test"},
		{"gateway:", "no_ids: true\npoison: 0.1\ngateway:", "no_ids with poison"},
		{right, "", "it is empty"}, {right, right + "---\nshows: Another.\n", "a second document"},
		{"[once, rate]", "[always]", `promise "always"`}, {"knee: 8", "knee: 0", "knee 0"}, {"at: 8s", "at: 2s", "in order of time"},
	} {
		if _, err := Parse("wrong", []byte(strings.Replace(right, c.old, c.wrong, 1))); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s in place of %s: %v, want %s", c.wrong, c.old, err, c.says)
		}
	}
}
