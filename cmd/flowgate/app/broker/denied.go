package broker

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
)

// DeniedError says which rights the gateway's user lacks.
type DeniedError struct {
	// Publish and Subscribe are the subjects, as they are written into permissions.
	Publish, Subscribe []string
}

// Error implements error.
func (e *DeniedError) Error() string {
	var parts []string
	if len(e.Publish) > 0 {
		parts = append(parts, "publish "+strings.Join(e.Publish, ", "))
	}
	if len(e.Subscribe) > 0 {
		parts = append(parts, "subscribe to "+strings.Join(e.Subscribe, ", "))
	}
	return "the NATS user that flowgate signs in as may not " + strings.Join(parts, ", nor ") +
		"; allow these subjects in its permissions, or sign in as another (FLOWGATE_NATS_USER, _CREDS, _TOKEN); `flowgate check --online` tests every right"
}

// Permitted is ctx until the server says on any of the gateway's connections that a
// right is missing, or until timeout is over. The server answers nothing to a request
// that is not allowed: it would wait for its whole time and tell no reason. Denied
// tells it.
func (b *Broker) Permitted(ctx context.Context, timeout time.Duration) (context.Context, context.CancelFunc) {
	ctx, done := context.WithTimeout(ctx, timeout)
	ctx, deny := context.WithCancelCause(ctx)
	b.mu.Lock()
	b.deny = deny
	b.mu.Unlock()
	return ctx, func() {
		b.mu.Lock()
		b.deny = nil
		b.mu.Unlock()
		deny(nil)
		done()
	}
}

// Denied is the missing right that ended a context of Permitted's, in place of err,
// which came of it; else it is err.
func Denied(ctx context.Context, err error) error {
	if denied, ok := errors.AsType[*DeniedError](context.Cause(ctx)); ok && err != nil {
		return denied
	}
	return err
}

// heard ends the context of Permitted's if err is a missing right.
func (b *Broker) heard(err error) {
	if !errors.Is(err, nats.ErrPermissionViolation) {
		return
	}
	b.mu.Lock()
	deny := b.deny
	b.mu.Unlock()
	if deny != nil {
		deny(violation(err))
	}
}

// violation reads the server's words, "Permissions Violation for Publish to "x"" or
// "… for Subscription to "x" using queue "q"".
func violation(err error) error {
	_, what, _ := strings.Cut(err.Error(), "Violation for ")
	verb, subject, _ := strings.Cut(what, " to \"")
	subject, _, ok := strings.Cut(subject, "\"")
	switch {
	case ok && verb == "Publish":
		return &DeniedError{Publish: []string{subject}}
	case ok && verb == "Subscription":
		return &DeniedError{Subscribe: []string{subject}}
	}
	return fmt.Errorf("a right is missing: %w", err)
}
