package main

import (
	"context"
	"errors"
	"time"
)

// await waits for a condition, two minutes at most.
func await(ctx context.Context, ok func() bool) error {
	end := time.Now().Add(2 * time.Minute)
	for !ok() {
		if time.Now().After(end) {
			return errors.New("nothing happened for two minutes")
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(time.Millisecond):
		}
	}
	return nil
}

// rest waits for so long.
func rest(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
