package main

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/flowgate/flowgate/cmd/flowgate/app"
)

// severity is how much a verdict matters.
type severity int

const (
	calm severity = iota
	notable
	severe
)

// verdict says in a line what an operator has to know of a gateway at the instant now.
func verdict(s app.Status, now time.Time) (string, severity) {
	if s.Replica.Lost && s.Replica.Active != "" {
		return "NATS DOES NOT ANSWER, standing by: active was " + plain(s.Replica.Active), severe
	}
	if s.Replica.Lost {
		return "NATS DOES NOT ANSWER: the lease ran out, nothing is admitted or delivered; what is below was so " + rough(now.Sub(s.SampledAt)) + " ago", severe
	}
	if !s.Replica.Leader {
		if s.Replica.Active != "" {
			return "standing by: active is " + plain(s.Replica.Active), notable
		}
		return "not active: it is starting", severe
	}
	var said []string
	worst := calm
	say := func(how severity, format string, args ...any) {
		said, worst = append(said, fmt.Sprintf(format, args...)), max(worst, how)
	}
	if s.Stale {
		say(severe, "STALE: the backlog's stream was not read for %s", rough(now.Sub(s.SampledAt)))
	}
	if s.Breaker != "closed" {
		say(severe, "BREAKER %s: the consumer cannot take work", strings.ToUpper(strings.ReplaceAll(plain(s.Breaker), "_", " ")))
	}
	if s.Paused {
		text := "PAUSED"
		if p := s.Pause; p != nil {
			text += " for " + rough(now.Sub(p.Since))
			if p.Author != "" {
				text += " by " + plain(p.Author)
			}
			if !p.Until.IsZero() {
				text += " until " + p.Until.UTC().Format(time.RFC3339)
			}
			if p.Reason != "" {
				text += ": " + plain(p.Reason)
			}
		}
		say(notable, "%s", text)
	}
	if s.Level == "pressured" {
		text := "PRESSURED"
		if s.PressuredSince != nil {
			text += " for " + rough(now.Sub(*s.PressuredSince))
		}
		if len(s.Signals) > 0 {
			text += " by " + plain(strings.Join(s.Signals, ", "))
		}
		if s.HintSeconds > 0 {
			text += "; who comes now is told to wait " + rough(asDuration(s.HintSeconds))
		}
		say(severe, "%s", text)
	}
	if len(said) == 0 && s.HintSeconds > 0 {
		return "normal, and producers stand in line: who comes now is told to wait " + rough(asDuration(s.HintSeconds)), notable
	}
	if len(said) == 0 {
		return "normal", calm
	}
	return strings.Join(said, " · "), worst
}

// prospect says what becomes of the depth.
func prospect(s app.Status) string {
	var said []string
	if s.Depth.Total == 0 {
		said = append(said, "empty")
	} else if s.DrainSeconds != nil {
		said = append(said, "drains in "+rough(asDuration(*s.DrainSeconds)))
	} else {
		said = append(said, "does not drain")
	}
	if s.TimeToHigh != nil && s.Level != "pressured" {
		said = append(said, "at high in "+rough(asDuration(*s.TimeToHigh)))
	}
	return strings.Join(said, ", ")
}

func asDuration(seconds float64) time.Duration {
	if seconds > math.MaxInt64/1e9 {
		return math.MaxInt64
	}
	return time.Duration(seconds * float64(time.Second))
}

// rough is a duration of two figures or so, as people say it.
func rough(d time.Duration) string {
	switch {
	case d < 0:
		return "0s"
	case d >= 100*24*time.Hour:
		return "over 100d"
	case d >= 48*time.Hour:
		return fmt.Sprintf("%dd%dh", d/(24*time.Hour), d%(24*time.Hour)/time.Hour)
	case d >= time.Hour:
		return fmt.Sprintf("%dh%dm", d/time.Hour, d%time.Hour/time.Minute)
	case d >= time.Minute:
		return fmt.Sprintf("%dm%ds", d/time.Minute, d%time.Minute/time.Second)
	case d >= 10*time.Second:
		return d.Round(time.Second).String()
	case d >= time.Second:
		return d.Round(100 * time.Millisecond).String()
	case d >= 10*time.Millisecond:
		return d.Round(time.Millisecond).String()
	}
	return d.Round(10 * time.Microsecond).String()
}

// grouped is a whole number with commas.
func grouped(n uint64) string {
	s := strconv.FormatUint(n, 10)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// perSecond is a rate.
func perSecond(v float64) string {
	if v >= 100 || v == math.Trunc(v) {
		return grouped(uint64(math.Round(max(0, v)))) + "/s"
	}
	return strconv.FormatFloat(max(0, v), 'g', 3, 64) + "/s"
}

// pace is a rate that has no bound if it is nil.
func pace(v *float64) string {
	if v == nil {
		return "unlimited"
	}
	return perSecond(*v)
}

// span is a duration in seconds, - if there is none.
func span(v *float64) string {
	if v == nil {
		return "-"
	}
	return rough(asDuration(*v))
}
