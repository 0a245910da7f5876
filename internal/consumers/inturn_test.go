package consumers

import (
	"context"
	"errors"
	"testing"
)

func TestInTurn(t *testing.T) {
	cause := errors.New("cause")
	for name, c := range map[string]struct {
		order   Order
		answers []error // nil: done; those after are never asked for
		cancel  int     // ctx ends in this attempt, from 1; 0: never
		want    []VerdictKind
		tried   int
	}{
		"all done":                     {OrderNone, []error{nil, nil, nil}, 0, []VerdictKind{Done, Done, Done}, 3},
		"a failure alone":              {OrderNone, []error{nil, cause, nil}, 0, []VerdictKind{Done, Retry, Done}, 3},
		"a rejection alone":            {OrderNone, []error{Permanent(cause), nil, nil}, 0, []VerdictKind{Reject, Done, Done}, 3},
		"overload ends it":             {OrderNone, []error{nil, Overloaded(0, cause)}, 0, []VerdictKind{Done, Overload, Overload}, 2},
		"time ends it":                 {OrderNone, []error{nil, context.DeadlineExceeded}, 2, []VerdictKind{Done, Retry, Overload}, 2},
		"time ends it, done":           {OrderNone, []error{nil}, 1, []VerdictKind{Done, Overload, Overload}, 1},
		"in order, done":               {OrderTenant, []error{nil, nil, nil}, 0, []VerdictKind{Done, Done, Done}, 3},
		"in order, a failure":          {OrderTenant, []error{nil, cause}, 0, []VerdictKind{Done, Retry, Hold}, 2},
		"in order, a rejection":        {OrderTenant, []error{Permanent(cause)}, 0, []VerdictKind{Reject, Hold, Hold}, 1},
		"in order, overload":           {OrderTenant, []error{Overloaded(0, cause)}, 0, []VerdictKind{Overload, Hold, Hold}, 1},
		"in order, time":               {OrderTenant, []error{nil}, 1, []VerdictKind{Done, Hold, Hold}, 1},
		"in order, the last one fails": {OrderTenant, []error{nil, nil, cause}, 0, []VerdictKind{Done, Done, Retry}, 3},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			tried := 0
			got := inTurn(ctx, deliveries(3), c.order, func(context.Context, Delivery) error {
				tried++
				if tried == c.cancel {
					cancel()
				}
				return c.answers[tried-1]
			})
			wantKinds(t, got, c.want...)
			if tried != c.tried {
				t.Errorf("%d were tried, want %d", tried, c.tried)
			}
		})
	}
}
