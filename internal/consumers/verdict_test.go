package consumers

import (
	"errors"
	"fmt"
	"testing"
	"time"
)

func TestJudge(t *testing.T) {
	cause := errors.New("the cause")
	for name, test := range map[string]struct {
		answer error
		want   VerdictKind
		wait   time.Duration
	}{
		"nil":                 {nil, Done, 0},
		"plain":               {cause, Retry, 0},
		"retry after":         {RetryAfter(3*time.Second, cause), Retry, 3 * time.Second},
		"overloaded":          {Overloaded(0, cause), Overload, 0},
		"overloaded, a pause": {Overloaded(time.Hour, cause), Overload, time.Hour},
		"permanent":           {Permanent(cause), Reject, 0},
		"wrapped overload":    {fmt.Errorf("post: %w", Overloaded(time.Second, cause)), Overload, time.Second},
		"wrapped permanent":   {fmt.Errorf("a: %w", fmt.Errorf("b: %w", Permanent(cause))), Reject, 0},
		"joined":              {errors.Join(errors.New("other"), Permanent(cause)), Reject, 0},
		// Never to try again is the strongest word.
		"permanent in overload": {Overloaded(time.Second, Permanent(cause)), Reject, 0},
	} {
		v := Judge(test.answer)
		if v.Kind != test.want || v.Wait != test.wait {
			t.Errorf("%s: %s after %s, want %s after %s", name, v.Kind, v.Wait, test.want, test.wait)
		}
		if test.answer == nil {
			if v.Err != nil {
				t.Errorf("%s: error %v", name, v.Err)
			}
			continue
		}
		if !errors.Is(v.Err, cause) || v.Err.Error() != test.answer.Error() {
			t.Errorf("%s: the verdict's error is %q, want all of %q", name, v.Err, test.answer)
		}
	}
}
