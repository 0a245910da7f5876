package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/flowgate/flowgate/cmd/flowgate/app"
	"github.com/flowgate/flowgate/internal/history"
)

const (
	// lookEvery is how often top asks, and lookTimeout how long it waits for each answer.
	lookEvery   = time.Second
	lookTimeout = 2 * time.Second
	// shownSeconds is how far back its line of depths goes.
	shownSeconds = 60
	// lookedTenants is how many tenants are asked for.
	lookedTenants = 100
)

// sight is what top sees of a gateway at once.
type sight struct {
	at      time.Time
	status  app.Status
	samples []history.Sample // of a standby none
	tenants app.TenantList
}

// newest is the newest sample; the zero one before there is any.
func (s sight) newest() history.Sample {
	if len(s.samples) == 0 {
		return history.Sample{}
	}
	return s.samples[len(s.samples)-1]
}

// look asks for all of it.
func look(ctx context.Context, gateway *adminClient, sort string) (s sight, err error) {
	if s.status, _, err = readStatus(ctx, gateway); err != nil {
		return s, err
	}
	s.at = time.Now()
	if !s.status.Replica.Leader {
		return s, nil
	}
	var h app.History
	if err := gateway.do(ctx, http.MethodGet, fmt.Sprintf("/api/v1/history?last=%d", shownSeconds), nil, &h); err != nil {
		return s, err
	}
	s.samples = h.Samples
	err = gateway.do(ctx, http.MethodGet, fmt.Sprintf("/api/v1/tenants?sort=%s&limit=%d", sort, lookedTenants), nil, &s.tenants)
	return s, err
}

func (c cli) top(ctx context.Context, f *flag.FlagSet, args []string) error {
	client := c.addrFlag(f)
	if err := parse(f, args); err != nil {
		return err
	}
	gateway, err := client()
	if err != nil {
		return err
	}
	gateway.http.Timeout = lookTimeout
	if !isTerminal(c.stdout) || !readsTerminal(c.stdin) {
		return topLines(ctx, c.stdout, gateway)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // what is being asked
	screen := newTopScreen(func(sort string) (sight, error) { return look(ctx, gateway, sort) }, gateway.base)
	// The process handles signals; in raw mode ctrl-C is a key.
	p := tea.NewProgram(screen, tea.WithInput(c.stdin), tea.WithOutput(c.stdout), tea.WithEnvironment(c.environ), tea.WithoutSignalHandler())
	// Not tea.WithContext: killed, a program closes the terminal's reader while it reads.
	defer context.AfterFunc(ctx, p.Quit)()
	if _, err := p.Run(); err != nil {
		return fmt.Errorf("terminal: %w", err)
	}
	return nil
}

// readsTerminal reports whether keys can be read.
func readsTerminal(r io.Reader) bool {
	w, ok := r.(io.Writer)
	return ok && isTerminal(w)
}

// topLines prints a line a second, until ctx ends or nobody reads. That the gateway is
// away is said once.
func topLines(ctx context.Context, w io.Writer, gateway *adminClient) error {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	away := ""
	for first := true; ; first = false {
		s, err := look(ctx, gateway, "depth")
		if first && err != nil && ctx.Err() == nil {
			return err
		}
		line := ""
		switch {
		case ctx.Err() != nil:
			return nil
		case err == nil:
			away, line = "", topLine(s)
		case err.Error() != away:
			away = err.Error()
			line = time.Now().Format(time.TimeOnly) + " away: " + away
		}
		if line != "" {
			if _, err := fmt.Fprintln(w, line); err != nil {
				return errors.Join(errors.New("print"), err)
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// topLine is a second of a gateway.
func topLine(s sight) string {
	said, _ := verdict(s.status, s.at)
	line := s.at.Format(time.TimeOnly) + " "
	if !s.status.Replica.Leader {
		return line + said
	}
	n := s.newest()
	return line + fmt.Sprintf("depth %s/%s (%s), oldest %s; admitted %s, refused %s, delivered %s; %s",
		grouped(s.status.Depth.Total), grouped(s.status.Watermarks.High), prospect(s.status), rough(asDuration(s.status.OldestAge)),
		perSecond(n.Admitted), perSecond(n.Refused), perSecond(n.Delivered), said)
}
