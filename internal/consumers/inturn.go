package consumers

import (
	"context"
	"fmt"
)

// inTurn makes the attempts of a batch one after the other. What is not reached is
// handed back without having counted.
func inTurn(ctx context.Context, batch []Delivery, order Order, attempt func(context.Context, Delivery) error) []error {
	verdicts := make([]error, len(batch))
	for i, d := range batch {
		verdicts[i] = attempt(ctx, d)
		if rest := untried(ctx, order, verdicts[i]); rest != nil {
			for j := i + 1; j < len(batch); j++ {
				verdicts[j] = rest
			}
			break
		}
	}
	return verdicts
}

// untried is the verdict on what stands behind a message in its batch; nil: it may be
// tried. In order nothing passes a message that failed, also not one that goes to
// the dead letters: that may not succeed.
func untried(ctx context.Context, order Order, before error) error {
	kind := Judge(before).Kind
	switch {
	case order == OrderTenant && (kind != Done || ctx.Err() != nil):
		return Held(fmt.Errorf("not tried: %s", reasonOf(ctx, before)))
	case kind == Overload || ctx.Err() != nil:
		return Overloaded(0, fmt.Errorf("not tried: %s", reasonOf(ctx, before)))
	}
	return nil
}

// reasonOf is a text, so that the verdict on one message is not found in another's.
func reasonOf(ctx context.Context, before error) string {
	if before != nil {
		return "the message before it: " + before.Error()
	}
	return ctx.Err().Error()
}
