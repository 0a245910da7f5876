package main

import (
	"context"
	"errors"
	"strings"
	"testing"
)

func TestOneThatFailsFailsTheRun(t *testing.T) {
	chosen := contestants[:4]
	failed := errors.New("no port")
	for _, atOnce := range []int{1, 3} {
		got := sideBySide(t.Context(), chosen, atOnce, func(ctx context.Context, c contestant) entry {
			switch c.Name {
			case chosen[0].Name:
				return entry{err: absence("not installed")}
			case chosen[1].Name:
				return entry{err: failed}
			case chosen[2].Name:
				if atOnce == 1 {
					t.Error("another begins after one failed")
				}
				<-ctx.Done()
				return entry{err: ctx.Err()}
			}
			return entry{version: c.Name}
		})
		if gone := absence(""); !errors.As(got[0].err, &gone) {
			t.Errorf("what is not there: %v", got[0].err)
		}
		for _, e := range got[1:3] {
			if !errors.Is(e.err, failed) || !strings.HasPrefix(e.err.Error(), chosen[1].Name+": ") {
				t.Errorf("%d at once: %v", atOnce, e.err)
			}
		}
	}
}

func TestAllRunInTheirOrder(t *testing.T) {
	var order []string
	for i, e := range sideBySide(t.Context(), contestants, 1, func(_ context.Context, c contestant) entry {
		order = append(order, c.Name)
		return entry{version: c.Name}
	}) {
		if e.err != nil || e.version != contestants[i].Name || order[i] != e.version {
			t.Errorf("%d: %+v", i, e)
		}
	}
}
