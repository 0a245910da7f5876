package broker

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/nats-io/nats.go/jetstream"
)

// overlap reports whether some subject matches both patterns. `*` stands for one
// token, `>` at the end for one or more.
func overlap(a, b string) bool {
	for {
		ta, ra, moreA := strings.Cut(a, ".")
		tb, rb, moreB := strings.Cut(b, ".")
		switch {
		case ta == ">" && !moreA || tb == ">" && !moreB:
			// One or more tokens: both patterns have at least this one.
			return true
		case ta != tb && ta != "*" && tb != "*":
			return false
		case !moreA || !moreB:
			return moreA == moreB
		}
		a, b = ra, rb
	}
}

// overlapAny reports whether one of the patterns has a subject in common with p.
func overlapAny(patterns []string, p string) bool {
	for _, q := range patterns {
		if overlap(q, p) {
			return true
		}
	}
	return false
}

// Holder is a stream and its subjects.
type Holder struct {
	Stream   string
	Subjects []string
}

// String gives its name and subjects.
func (h Holder) String() string {
	if len(h.Subjects) == 0 {
		return h.Stream
	}
	return h.Stream + " (" + strings.Join(h.Subjects, ", ") + ")"
}

// Overlapping lists the account's streams that store subjects which pattern matches.
// The server picks them, so that it may be called each few seconds on a large
// account; what it picks is asked again for its subjects.
func Overlapping(ctx context.Context, js jetstream.JetStream, pattern string) ([]Holder, error) {
	names := js.StreamNames(ctx, jetstream.WithStreamListSubject(pattern))
	var list []string
	for name := range names.Name() {
		list = append(list, name)
	}
	if err := names.Err(); err != nil {
		return nil, fmt.Errorf("list the streams of %s: %w", pattern, err)
	}
	var held []Holder
	for _, name := range list {
		h := Holder{Stream: name}
		// A stream without a leader does not tell its subjects; it is listed all the
		// same, since it captures again once it has one.
		info, err := infoOf(ctx, js, name)
		if errors.Is(err, jetstream.ErrStreamNotFound) {
			continue // deleted in between
		}
		if err == nil {
			h.Subjects = info.Config.Subjects
			if !overlapAny(h.Subjects, pattern) {
				continue // changed in between
			}
		}
		held = append(held, h)
	}
	return held, nil
}

// Capturing names a stream that captures the subjects below ingress: it and the
// gateway would both answer producers. Empty: there is none.
func Capturing(ctx context.Context, js jetstream.JetStream, ingress string) (string, error) {
	held, err := Overlapping(ctx, js, ingress+".>")
	if err != nil || len(held) == 0 {
		return "", err
	}
	return held[0].String(), nil
}
