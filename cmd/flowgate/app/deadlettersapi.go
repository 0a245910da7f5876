package app

import (
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/flowgate/flowgate/internal/consumers"
)

// sweepTime is how long a request changes many: well below what the address takes to
// answer.
const sweepTime = 8 * time.Second

// defaultPage is how many dead letters a list holds that does not say.
const defaultPage = 100

// deadLettersRoutes adds what concerns dead letters to the admin address. The list is
// for all who may look. What producers sent, headers and payload, is for those who may
// change something: it may be anything, and the destination would have kept it safe.
func (g *gateway) deadLettersRoutes(mux *http.ServeMux, a *authority) {
	mux.HandleFunc("GET /api/v1/dead-letters", g.listDeadLetters)
	mux.HandleFunc("GET /api/v1/dead-letters/{seq}", a.guard(g.showDeadLetter))
	mux.HandleFunc("POST /api/v1/dead-letters/{seq}/replay", a.guard(g.replayDeadLetter))
	mux.HandleFunc("DELETE /api/v1/dead-letters/{seq}", a.guard(g.deleteDeadLetter))
	mux.HandleFunc("POST /api/v1/dead-letters/replay", a.guard(func(w http.ResponseWriter, r *http.Request) {
		g.changeDeadLetters(w, r, "dead letters were replayed", g.graveyard.ReplayAll)
	}))
	mux.HandleFunc("POST /api/v1/dead-letters/purge", a.guard(func(w http.ResponseWriter, r *http.Request) {
		g.changeDeadLetters(w, r, "dead letters were purged", g.graveyard.Purge)
	}))
}

// deadLetterParameters are those of a list.
var deadLetterParameters = map[string]bool{
	"tenant": true, "class": true, "older_than": true, "newer_than": true, "from": true, "to": true, "order": true, "limit": true,
}

// readQuery reads what a list is asked for.
func readQuery(values url.Values) (f consumers.DeadLetterFilter, newest bool, n int, err error) {
	var errs []error
	for name, vs := range values {
		if !deadLetterParameters[name] {
			errs = append(errs, fmt.Errorf("there is no parameter %q", name))
		} else if len(vs) > 1 {
			errs = append(errs, fmt.Errorf("%s: is there %d times", name, len(vs)))
		}
	}
	number := func(name string) (v uint64) {
		if text := values.Get(name); text != "" {
			if v, err = strconv.ParseUint(text, 10, 64); err != nil {
				errs = append(errs, fmt.Errorf("%s: %q is not a sequence", name, text))
			}
		}
		return v
	}
	f, err = DeadLetterQuery{
		Tenant: values.Get("tenant"), Class: values.Get("class"), From: number("from"), To: number("to"),
		OlderThan: values.Get("older_than"), NewerThan: values.Get("newer_than"),
	}.Filter(time.Now())
	errs = append(errs, err)
	switch order := values.Get("order"); order {
	case "", "newest":
		newest = true
	case "oldest":
	default:
		errs = append(errs, fmt.Errorf("order: %q is neither newest nor oldest", order))
	}
	n = defaultPage
	if text := values.Get("limit"); text != "" {
		if n, err = strconv.Atoi(text); err != nil || n < 1 || n > consumers.MaxPage {
			errs = append(errs, fmt.Errorf("limit: %q must be 1 to %d", text, consumers.MaxPage))
		}
	}
	return f, newest, n, errors.Join(errs...)
}

func (g *gateway) listDeadLetters(w http.ResponseWriter, r *http.Request) {
	f, newest, n, err := readQuery(r.URL.Query())
	if err != nil {
		writeProblem(w, http.StatusBadRequest, err.Error())
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), replaceTimeout)
	defer cancel()
	page, err := g.graveyard.List(ctx, f, newest, n)
	if err != nil {
		writeDeadLetterProblem(w, err)
		return
	}
	list := DeadLetterList{DeadLetters: []DeadLetter{}, Next: queryOf(page.Next)}
	for _, d := range page.Letters {
		list.DeadLetters = append(list.DeadLetters, deadLetterOf(d))
	}
	writeJSON(w, list)
}

// seqOf reads the sequence of a path; what is wrong with it is answered.
func seqOf(w http.ResponseWriter, r *http.Request) (uint64, bool) {
	seq, err := strconv.ParseUint(r.PathValue("seq"), 10, 64)
	if err != nil || seq == 0 {
		writeProblem(w, http.StatusBadRequest, fmt.Sprintf("%q is not the sequence of a dead letter", r.PathValue("seq")))
		return 0, false
	}
	return seq, true
}

func (g *gateway) showDeadLetter(w http.ResponseWriter, r *http.Request) {
	seq, ok := seqOf(w, r)
	if !ok {
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), changeTimeout)
	defer cancel()
	c, err := g.graveyard.Get(ctx, seq)
	if err != nil {
		writeDeadLetterProblem(w, err)
		return
	}
	shown := DeadLetterContent{DeadLetter: deadLetterOf(c.DeadLetter), Headers: c.Headers}
	if utf8.Valid(c.Payload) {
		shown.Payload = string(c.Payload)
	} else {
		shown.Payload, shown.Base64 = base64.StdEncoding.EncodeToString(c.Payload), true
	}
	writeJSON(w, shown)
}

// why is who makes a change and why, from the query: a DELETE has no body that all
// would pass on.
func why(r *http.Request) (author, reason string) {
	q := r.URL.Query()
	return cmp.Or(q.Get("author"), apiAuthor), q.Get("reason")
}

func (g *gateway) replayDeadLetter(w http.ResponseWriter, r *http.Request) {
	seq, ok := seqOf(w, r)
	if !ok || g.closing(w) {
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), changeTimeout)
	defer cancel()
	raised, err := g.graveyard.Replay(ctx, seq)
	g.recount(ctx)
	author, reason := why(r)
	if raised.BacklogSeq > 0 { // also if it could not be deleted then
		g.log.Info("a dead letter was replayed", "seq", seq, "id", raised.ID, "author", author, "reason", reason)
	}
	if err != nil {
		writeDeadLetterProblem(w, err)
		return
	}
	writeJSON(w, RaisedDeadLetter{DeadLetter: deadLetterOf(raised.DeadLetter), BacklogSeq: raised.BacklogSeq})
}

func (g *gateway) deleteDeadLetter(w http.ResponseWriter, r *http.Request) {
	seq, ok := seqOf(w, r)
	if !ok {
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), changeTimeout)
	defer cancel()
	err := g.graveyard.Delete(ctx, seq)
	g.recount(ctx)
	if err != nil {
		writeDeadLetterProblem(w, err)
		return
	}
	author, reason := why(r)
	g.log.Info("a dead letter was purged", "seq", seq, "author", author, "reason", reason)
	w.WriteHeader(http.StatusNoContent)
}

// changeDeadLetters does something with all that the body selects, for a while.
func (g *gateway) changeDeadLetters(w http.ResponseWriter, r *http.Request, what string,
	change func(context.Context, consumers.DeadLetterFilter, time.Time) (consumers.Progress, error)) {
	var body DeadLetterChange
	if !readJSON(w, r, maxBody, &body) || g.closing(w) {
		return
	}
	now := time.Now()
	f, err := body.Filter(now)
	if err != nil {
		writeProblem(w, http.StatusBadRequest, err.Error())
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), replaceTimeout)
	defer cancel()
	p, err := change(ctx, f, now.Add(sweepTime))
	g.recount(ctx)
	if p.Count > 0 {
		g.log.Info(what, "messages", p.Count, "tenant", f.Tenant, "class", f.Class, "older_than", body.OlderThan, "newer_than", body.NewerThan,
			"from", f.From, "to", f.To, "author", cmp.Or(body.Author, apiAuthor), "reason", body.Reason)
	}
	if err != nil && p.Count == 0 {
		writeDeadLetterProblem(w, err)
		return
	}
	answer := DeadLetterProgress{Count: p.Count, Skipped: p.Skipped, Waiting: p.Waiting, Next: queryOf(p.Next)}
	if err != nil {
		answer.Stopped = err.Error()
	}
	if p.Why != nil {
		answer.Why = p.Why.Error()
	}
	writeJSON(w, answer)
}

// closing refuses what would begin while the gateway ends.
func (g *gateway) closing(w http.ResponseWriter) bool {
	if g.draining.Load() {
		writeProblem(w, http.StatusServiceUnavailable, "the gateway is shutting down")
		return true
	}
	return false
}

func writeDeadLetterProblem(w http.ResponseWriter, err error) {
	status := http.StatusServiceUnavailable // the broker's fault, or its slowness
	switch {
	case errors.Is(err, consumers.ErrNoDeadLetter):
		status = http.StatusNotFound
	case consumers.Unreplayable(err):
		status = http.StatusConflict
	}
	writeProblem(w, status, err.Error())
}
