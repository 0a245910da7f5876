package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/flowgate/flowgate/internal/algorithms"
	"github.com/flowgate/flowgate/internal/limits"
)

// Where a limit comes from.
const (
	FromEnvironment = "environment"
	FromLive        = "live"
)

// LimitList is the answer to GET /api/v1/limits.
type LimitList struct {
	Limits []ListedLimit `json:"limits"`
	// Broken is what stands in the bucket and is no limit.
	Broken []limits.BrokenEntry `json:"broken"`
	// Stale says why the live limits may not be those of the bucket; empty if they are.
	Stale string `json:"stale,omitempty"`
	// Keys counts the keys whose use is remembered, by scope.
	Keys map[limits.Scope]int `json:"keys"`
}

// ListedLimit is one of them.
type ListedLimit struct {
	Scope  limits.Scope     `json:"scope"`
	Key    string           `json:"key"`
	Limit  algorithms.Rules `json:"limit"`
	Source string           `json:"source"`
	// InForce is false for one of the environment that a live one takes the place of.
	InForce bool      `json:"in_force"`
	Author  string    `json:"author,omitempty"`
	Reason  string    `json:"reason,omitempty"`
	At      time.Time `json:"at,omitzero"`
}

// These bound a change: the broker's writes, and hearing of them. 8,000 limits took
// 9 s with a disk that is synced at each write; the address answers within 30 s.
const (
	changeTimeout  = 10 * time.Second
	replaceTimeout = 25 * time.Second
)

// limitsRoutes adds what concerns limits to the admin address.
func (g *gateway) limitsRoutes(mux *http.ServeMux, a *authority) {
	mux.HandleFunc("GET /api/v1/limits", func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, g.limitList()) })
	mux.HandleFunc("PUT /api/v1/limits", a.guard(g.replaceLimits))
	// A pattern of one segment does not match the key %2F.
	mux.HandleFunc("PUT /api/v1/limits/{scope}/{key...}", a.guard(g.setLimit))
	mux.HandleFunc("DELETE /api/v1/limits/{scope}/{key...}", a.guard(g.deleteLimit))
}

func (g *gateway) limitList() LimitList {
	live := g.liveLimits.List()
	type place struct {
		scope limits.Scope
		key   string
	}
	taken := map[place]bool{}
	for _, e := range live {
		taken[place{e.Scope, e.Key}] = true
	}
	list := LimitList{Limits: []ListedLimit{}, Broken: g.liveLimits.Broken(), Keys: map[limits.Scope]int{}}
	if list.Broken == nil {
		list.Broken = []limits.BrokenEntry{}
	}
	if err := g.liveLimits.Stale(); err != nil {
		list.Stale = err.Error()
	}
	for _, n := range g.limits.Counts() {
		list.Keys[n.Scope] = n.Keys
	}
	configured := g.cfg.Limit.Entries()
	for _, scope := range limits.Scopes() {
		for _, e := range live {
			if e.Scope == scope {
				list.Limits = append(list.Limits, ListedLimit{
					Scope: e.Scope, Key: e.Key, Limit: e.Rules, Source: FromLive, InForce: true,
					Author: e.Author, Reason: e.Reason, At: e.At,
				})
			}
		}
		for _, e := range configured {
			if e.Scope == scope {
				list.Limits = append(list.Limits, ListedLimit{
					Scope: e.Scope, Key: e.Key, Limit: e.Rules, Source: FromEnvironment, InForce: !taken[place{e.Scope, e.Key}],
				})
			}
		}
	}
	return list
}

// apiAuthor is who made a change and did not say so.
const apiAuthor = "admin api"

// LimitBody is a limit as it is sent; at is taken and not believed.
type LimitBody struct {
	Scope  string    `json:"scope"`
	Key    string    `json:"key"`
	Limit  *string   `json:"limit"`
	Author string    `json:"author,omitempty"`
	Reason string    `json:"reason,omitempty"`
	At     time.Time `json:"at,omitzero"`
}

// Entry checks the limit and joins all that is wrong with it.
func (b LimitBody) Entry() (limits.Entry, error) {
	e := limits.Entry{Scope: limits.Scope(b.Scope), Key: b.Key, Author: b.Author, Reason: b.Reason}
	var err error
	if b.Limit == nil {
		err = errors.New("limit: is missing")
	} else if e.Rules, err = algorithms.ParseRules(*b.Limit); err != nil {
		err = fmt.Errorf("limit: %w", err)
	}
	return e, errors.Join(err, e.Validate())
}

// LimitSet is the body of PUT /api/v1/limits.
type LimitSet struct {
	Limits []LimitBody `json:"limits"`
}

// mostErrors is how many wrong limits of a set are told one by one.
const mostErrors = 100

// Entries checks a set, and says a line for each limit that is wrong.
func (s LimitSet) Entries() ([]limits.Entry, error) {
	entries := []limits.Entry{}
	var errs []error
	for i, b := range s.Limits {
		e, err := b.Entry()
		if err != nil {
			errs = append(errs, fmt.Errorf("entry %d: %s", i+1, strings.ReplaceAll(err.Error(), "\n", "; ")))
		}
		if rest := len(s.Limits) - i - 1; len(errs) == mostErrors && rest > 0 {
			errs = append(errs, fmt.Errorf("the %d entries after it were not looked at", rest))
			break
		}
		entries = append(entries, e)
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return entries, limits.ValidateSet(entries)
}

func (g *gateway) setLimit(w http.ResponseWriter, r *http.Request) {
	var body struct {
		Limit  *string `json:"limit"`
		Author string  `json:"author"`
		Reason string  `json:"reason"`
	}
	if !readJSON(w, r, maxBody, &body) {
		return
	}
	e, err := LimitBody{
		Scope: r.PathValue("scope"), Key: r.PathValue("key"), Limit: body.Limit,
		Author: cmp.Or(body.Author, apiAuthor), Reason: body.Reason,
	}.Entry()
	if err != nil {
		writeProblem(w, http.StatusBadRequest, err.Error())
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), changeTimeout)
	defer cancel()
	stored, err := g.liveLimits.Set(ctx, e)
	if err != nil {
		writeChangeProblem(w, err)
		return
	}
	g.log.Info("a limit was set", "scope", stored.Scope, "key", stored.Key, "limit", stored.Rules.String(), "author", stored.Author, "reason", stored.Reason)
	writeJSON(w, stored)
}

func (g *gateway) deleteLimit(w http.ResponseWriter, r *http.Request) {
	scope, key := limits.Scope(r.PathValue("scope")), r.PathValue("key")
	ctx, cancel := context.WithTimeout(r.Context(), changeTimeout)
	defer cancel()
	if err := g.liveLimits.Delete(ctx, scope, key); err != nil {
		writeChangeProblem(w, err)
		return
	}
	author, reason := why(r)
	g.log.Info("a limit was deleted", "scope", scope, "key", key, "author", author, "reason", reason)
	w.WriteHeader(http.StatusNoContent)
}

func (g *gateway) replaceLimits(w http.ResponseWriter, r *http.Request) {
	var body LimitSet
	if !readJSON(w, r, maxSetBody, &body) {
		return
	}
	if body.Limits == nil {
		writeProblem(w, http.StatusBadRequest, `the body has no "limits"; to delete all, send {"limits":[]}`)
		return
	}
	for i := range body.Limits {
		body.Limits[i].Author = cmp.Or(body.Limits[i].Author, apiAuthor)
	}
	entries, err := body.Entries()
	if err != nil {
		writeProblem(w, http.StatusBadRequest, err.Error())
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), replaceTimeout)
	defer cancel()
	changes, err := g.liveLimits.Replace(ctx, entries)
	if err != nil {
		writeChangeProblem(w, err)
		return
	}
	g.log.Info("the live limits were replaced", "added", len(changes.Added), "changed", len(changes.Changed),
		"removed", len(changes.Removed), "unchanged", len(changes.Unchanged))
	writeJSON(w, changes)
}

func writeChangeProblem(w http.ResponseWriter, err error) {
	status := http.StatusServiceUnavailable // the broker's fault, or its slowness
	if _, ok := errors.AsType[*limits.InvalidError](err); ok {
		status = http.StatusBadRequest
	} else if errors.Is(err, limits.ErrNoEntry) {
		status = http.StatusNotFound
	}
	writeProblem(w, status, err.Error())
}
