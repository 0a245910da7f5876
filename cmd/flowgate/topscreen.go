package main

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"
)

// topScreen is top on a terminal.
type topScreen struct {
	look func(sort string) (sight, error)
	base string // whom it asks

	seen          sight
	err           error // why the last look failed; nil: it did not
	away          time.Time
	sort          string
	width, height int
}

// looked is what a look brought.
type looked struct {
	sight sight
	err   error
	at    time.Time
	sort  string
	extra bool // a key asked for it, in between
}

func newTopScreen(look func(sort string) (sight, error), base string) topScreen {
	return topScreen{look: look, base: base, sort: "depth", width: 80, height: 24}
}

// ask looks once.
func (m topScreen) ask(extra bool) tea.Cmd {
	look, sort := m.look, m.sort
	return func() tea.Msg {
		s, err := look(sort)
		return looked{sight: s, err: err, at: time.Now(), sort: sort, extra: extra}
	}
}

// Init implements tea.Model.
func (m topScreen) Init() tea.Cmd { return m.ask(false) }

type again struct{}

// sortKeys are the columns of the table of tenants.
var sortKeys = map[string]string{"d": "depth", "r": "refused", "a": "admitted", "o": "oldest", "t": "tenant", "w": "weight"}

// Update implements tea.Model.
func (m topScreen) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		m.width, m.height = msg.Width, msg.Height
	case tea.KeyPressMsg:
		switch key := msg.String(); key {
		case "q", "ctrl+c", "esc":
			return m, tea.Quit
		default:
			if by := sortKeys[key]; by != "" && by != m.sort {
				m.sort = by
				return m, m.ask(true)
			}
		}
	case again:
		return m, m.ask(false)
	case looked:
		m.take(msg)
		if !msg.extra {
			return m, tea.Tick(lookEvery, func(time.Time) tea.Msg { return again{} })
		}
	}
	return m, nil
}

// take keeps what was seen, and what was seen before if there is nothing now.
func (m *topScreen) take(l looked) {
	switch {
	case l.err != nil:
		if m.err == nil {
			m.away = l.at
		}
		m.err = l.err
	case l.sort == m.sort:
		m.seen, m.err = l.sight, nil
	}
}

// View implements tea.Model.
func (m topScreen) View() tea.View {
	v := tea.NewView(m.text())
	v.AltScreen = true
	v.WindowTitle = "flowgate top"
	return v
}

// The styles, of whole lines.
const (
	bold    = "\x1b[1m"
	red     = "\x1b[1;31m"
	yellow  = "\x1b[1;33m"
	dim     = "\x1b[2m"
	endings = "\x1b[0m"
)

// text is what the terminal shows, cut to its size.
func (m topScreen) text() string {
	var lines []string
	add := func(style, format string, args ...any) {
		line := fit(fmt.Sprintf(format, args...), m.width)
		if style != "" {
			line = style + line + endings
		}
		lines = append(lines, line)
	}
	s := m.seen.status
	if m.err != nil {
		add(red, "AWAY since %s: %s", m.away.Format(time.TimeOnly), m.err)
	}
	if m.seen.at.IsZero() {
		if m.err == nil {
			add("", "asking %s …", m.base)
		}
		return m.finish(lines)
	}
	style := map[severity]string{calm: bold, notable: yellow, severe: red}
	said, how := verdict(s, m.seen.at)
	if m.err != nil {
		add(dim, "seen last at %s:", m.seen.at.Format(time.TimeOnly))
	}
	add(style[how], "%s", said)
	add(dim, "%s %s at %s, replica %s, mode %s, %s", plain(s.Name), plain(s.Version), m.base, plain(s.Replica.ID), plain(s.Mode), m.seen.at.Format(time.TimeOnly))
	if !s.Replica.Leader {
		return m.finish(lines)
	}
	n := m.seen.newest()
	add("", "")
	add("", "depth      %s of %s  %s  low %s  max %s", grouped(s.Depth.Total), grouped(s.Watermarks.High), bar(s.Depth.Total, s.Watermarks.High, 20), grouped(s.Watermarks.Low), grouped(s.Watermarks.Max))
	add("", "           %s waiting  %s/%s in flight  %s for a retry", grouped(s.Depth.Waiting), grouped(s.Depth.InFlight), grouped(s.Cap), grouped(s.Depth.Delayed))
	add("", "           oldest %s  %s", rough(asDuration(s.OldestAge)), prospect(s))
	var depths []uint64
	for _, sample := range m.seen.samples {
		depths = append(depths, sample.Depth)
	}
	add("", "last %ds   %s", shownSeconds, sparkline(depths))
	refused := perSecond(n.Refused)
	if len(n.RefusedBy) > 0 {
		var by []string
		for _, reason := range slices.SortedFunc(maps.Keys(n.RefusedBy), func(a, b string) int {
			return cmp.Or(cmp.Compare(n.RefusedBy[b], n.RefusedBy[a]), cmp.Compare(a, b))
		}) {
			by = append(by, plain(reason)+" "+perSecond(n.RefusedBy[reason]))
		}
		refused += " (" + strings.Join(by, ", ") + ")"
	}
	add("", "a second   admitted %s  delivered %s  retried %s  dead-lettered %s", perSecond(n.Admitted), perSecond(n.Delivered), perSecond(n.Retried), perSecond(n.DeadLettered))
	add("", "           refused %s", refused)
	add("", "shaper     %s of %s (%s)  late p99 %s", pace(s.Rate.Effective), pace(s.Rate.Configured), plain(s.Rate.Reason), span(n.LatenessP99))
	target := ""
	if n.TargetLatency != nil {
		target = "  target " + span(n.TargetLatency)
	}
	add("", "consumer   p50 %s  p95 %s  p99 %s%s  breaker %s  dead letters %s", span(n.LatencyP50), span(n.LatencyP95), span(n.LatencyP99), target, plain(s.Breaker), grouped(s.DeadLetters))
	add("", "")
	// A row is 52 columns and the reason beside the name.
	name := max(6, min(64, m.width-64))
	add(bold, "%-*s %8s %6s %9s %9s %8s %s", name, "TENANT", "DEPTH", "WEIGHT", "ADMITTED", "REFUSED", "OLDEST", "LAST REASON")
	room := m.height - len(lines) - 1
	for _, t := range m.seen.tenants.Tenants[:max(0, min(len(m.seen.tenants.Tenants), room))] {
		add("", "%-*s %8s %6d %9s %9s %8s %s", name, fit(plain(t.Tenant), name), grouped(uint64(max(0, t.Depth))), t.Weight, perSecond(t.Admitted), perSecond(t.Refused), span(t.OldestAge), plain(t.LastReason))
	}
	return m.finish(lines, fmt.Sprintf("%d tenants by %s", m.seen.tenants.Total, m.sort))
}

// finish puts the keys at the foot.
func (m topScreen) finish(lines []string, more ...string) string {
	if m.height < 2 {
		return strings.Join(lines[:min(len(lines), max(1, m.height))], "\n")
	}
	lines = lines[:min(len(lines), m.height-1)]
	for len(lines) < m.height-1 {
		lines = append(lines, "")
	}
	foot := "q quit"
	if len(more) > 0 {
		foot += " · " + strings.Join(more, " · ") + " · d r a o t w sort by depth, refused, admitted, oldest, name, weight"
	}
	return strings.Join(append(lines, dim+fit(foot, m.width)+endings), "\n")
}

// fit cuts a line of plain text.
func fit(s string, width int) string {
	if r := []rune(s); len(r) > width {
		return string(r[:max(0, width-1)]) + "…"
	}
	return s
}

// bar shows how much of the high mark is reached.
func bar(depth, high uint64, width int) string {
	full := width
	if depth < high {
		full = int(depth * uint64(width) / high)
	}
	return "[" + strings.Repeat("#", full) + strings.Repeat(".", width-full) + "]"
}

// sparkline draws values between 0 and the largest.
func sparkline(values []uint64) string {
	const steps = "▁▂▃▄▅▆▇█"
	blocks := []rune(steps)
	most := uint64(1)
	for _, v := range values {
		most = max(most, v)
	}
	line := make([]rune, len(values))
	for i, v := range values {
		line[i] = blocks[(v*uint64(len(blocks)-1)+most-1)/most]
	}
	return string(line)
}
