package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/nats-io/nats.go/micro"

	"github.com/flowgate/flowgate/internal/shaper"
	"github.com/flowgate/flowgate/internal/units"
)

// PauseBody is a pause as it is sent; without For and Until it lasts until somebody
// resumes.
type PauseBody struct {
	For    string `json:"for,omitempty"`   // a duration
	Until  string `json:"until,omitempty"` // RFC 3339
	Reason string `json:"reason,omitempty"`
	Author string `json:"author,omitempty"`
}

// Pause checks the pause, as of now, and joins all that is wrong with it. A zero now
// checks the form alone: the gateway's clock counts.
func (b PauseBody) Pause(now time.Time) (shaper.Pause, error) {
	p := shaper.Pause{Reason: b.Reason, Author: b.Author}
	var err error
	switch {
	case b.For != "" && b.Until != "":
		err = errors.New("for and until: one of them says when the pause ends")
	case b.For != "":
		var d time.Duration
		if d, err = units.ParseDuration(b.For); err != nil {
			err = fmt.Errorf("for: %w", err)
		} else if d <= 0 {
			err = fmt.Errorf("for: %s is not longer than nothing", b.For)
		} else {
			p.Until = now.Add(d).UTC().Truncate(time.Millisecond)
		}
	case b.Until != "":
		if p.Until, err = time.Parse(time.RFC3339, b.Until); err != nil {
			err = fmt.Errorf("until: %q is not a time like 2026-03-01T06:00:00Z", b.Until)
		} else if p.Until = p.Until.UTC(); !p.Until.After(now) {
			err = fmt.Errorf("until: %s has passed; it is %s", b.Until, now.UTC().Format(time.RFC3339))
		}
	}
	return p, errors.Join(err, p.Validate())
}

// ResumeBody is the end of a pause as it is sent.
type ResumeBody struct {
	Reason string `json:"reason,omitempty"`
	Author string `json:"author,omitempty"`
}

// Validate joins all that is wrong.
func (b ResumeBody) Validate() error {
	return shaper.Pause{Reason: b.Reason, Author: b.Author}.Validate()
}

// PauseAnswer says what holds after a change.
type PauseAnswer struct {
	Paused bool `json:"paused"`
	// Pause is the one that holds.
	Pause *shaper.Pause `json:"pause,omitempty"`
	// Was is the one that held before; nil if deliveries were not paused.
	Was *shaper.Pause `json:"was,omitempty"`
}

// TokenHeader carries FLOWGATE_ADMIN_TOKEN in a change over NATS.
const TokenHeader = "Flowgate-Admin-Token"

// natsAuthor is who made a change over NATS and did not say so.
const natsAuthor = "nats"

// pauseRoutes adds pause and resume to the admin address.
func (g *gateway) pauseRoutes(mux *http.ServeMux, a *authority) {
	mux.HandleFunc("POST /api/v1/pause", a.guard(func(w http.ResponseWriter, r *http.Request) {
		var body PauseBody
		answerChange(w, r, &body, func(ctx context.Context) (PauseAnswer, error) { return g.pause(ctx, body, apiAuthor) })
	}))
	mux.HandleFunc("POST /api/v1/resume", a.guard(func(w http.ResponseWriter, r *http.Request) {
		var body ResumeBody
		answerChange(w, r, &body, func(ctx context.Context) (PauseAnswer, error) { return g.resume(ctx, body, apiAuthor) })
	}))
}

// answerChange reads body, which may be left out, and answers what change says.
func answerChange(w http.ResponseWriter, r *http.Request, body any, change func(context.Context) (PauseAnswer, error)) {
	if r.ContentLength != 0 && !readJSON(w, r, maxBody, body) {
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), changeTimeout)
	defer cancel()
	answer, err := change(ctx)
	if err != nil {
		writeProblem(w, pauseStatus(err), err.Error())
		return
	}
	writeJSON(w, answer)
}

// wrongPause is a change that was refused for what it says.
type wrongPause struct{ error }

func pauseStatus(err error) int {
	if _, ok := errors.AsType[wrongPause](err); ok {
		return http.StatusBadRequest
	}
	return http.StatusServiceUnavailable // the broker's fault, or its slowness
}

// pause returns once no delivery starts any more. The shaper says so in the log, as
// it does when somebody else writes to the bucket.
func (g *gateway) pause(ctx context.Context, body PauseBody, author string) (PauseAnswer, error) {
	body.Author = cmp.Or(body.Author, author)
	p, err := body.Pause(time.Now())
	if err != nil {
		return PauseAnswer{}, wrongPause{err}
	}
	p, was, err := g.shaper.Pause(ctx, p)
	return PauseAnswer{Paused: true, Pause: &p, Was: was}, err
}

// resume returns once deliveries start again.
func (g *gateway) resume(ctx context.Context, body ResumeBody, author string) (PauseAnswer, error) {
	if err := body.Validate(); err != nil {
		return PauseAnswer{}, wrongPause{err}
	}
	was, err := g.shaper.Resume(ctx, cmp.Or(body.Author, author), body.Reason)
	return PauseAnswer{Was: was}, err
}

// paused gives the pause for the status; nil if there is none.
func (g *gateway) paused() *shaper.Pause {
	if p, ok := g.shaper.Paused(); ok {
		return &p
	}
	return nil
}

// pauseEndpoints are pause and resume over NATS. Who may publish there is for the
// account's permissions to say: the embedded server lets no client do so. A token, if
// there is one, is asked for all the same; without one nothing is gained by refusing,
// since who may publish everything may write to the bucket too.
func (g *gateway) pauseEndpoints() map[string]micro.HandlerFunc {
	a := newAuthority(g.cfg.Admin.Token)
	return map[string]micro.HandlerFunc{
		"pause": func(r micro.Request) {
			var body PauseBody
			respondChange(a, r, &body, func(ctx context.Context) (PauseAnswer, error) { return g.pause(ctx, body, natsAuthor) })
		},
		"resume": func(r micro.Request) {
			var body ResumeBody
			respondChange(a, r, &body, func(ctx context.Context) (PauseAnswer, error) { return g.resume(ctx, body, natsAuthor) })
		},
	}
}

// respondChange is answerChange over NATS. The requester is gone if a response fails.
func respondChange(a *authority, r micro.Request, body any, change func(context.Context) (PauseAnswer, error)) {
	refuse := func(status int, detail string) { _ = r.Error(strconv.Itoa(status), detail, nil) }
	if !a.knows(r.Headers().Get(TokenHeader)) {
		refuse(http.StatusUnauthorized, "a change needs the header "+TokenHeader+": <the gateway's FLOWGATE_ADMIN_TOKEN>")
		return
	}
	if len(r.Data()) > 0 {
		if err := ReadJSON(r.Data(), body); err != nil {
			refuse(http.StatusBadRequest, "the body cannot be read: "+err.Error())
			return
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), changeTimeout)
	defer cancel()
	answer, err := change(ctx)
	if err != nil {
		refuse(pauseStatus(err), err.Error())
		return
	}
	_ = r.RespondJSON(answer)
}
