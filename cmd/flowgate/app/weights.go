package app

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"net/http"
	"slices"
	"time"

	"github.com/flowgate/flowgate/internal/limits"
	"github.com/flowgate/flowgate/internal/shaper"
)

// WeightList is the answer to GET /api/v1/weights.
type WeightList struct {
	// Weights are those that were given; every other tenant has 1.
	Weights []ListedWeight `json:"weights"`
	// Broken is what stands in the bucket in a weight's place and is none.
	Broken []limits.BrokenEntry `json:"broken"`
	// Stale says why the live weights may not be those of the bucket; empty if they
	// are.
	Stale string `json:"stale,omitempty"`
}

// ListedWeight is one of them.
type ListedWeight struct {
	Tenant string `json:"tenant"`
	Weight uint64 `json:"weight"`
	Source string `json:"source"`
	// InForce is false for one of the environment that a live one takes the place of.
	InForce bool      `json:"in_force"`
	Author  string    `json:"author,omitempty"`
	Reason  string    `json:"reason,omitempty"`
	At      time.Time `json:"at,omitzero"`
}

// CheckWeight joins all that is wrong with a weight that is to be set.
func CheckWeight(w limits.Weight) error { return w.Validate(shaper.CheckWeight) }

// weightsRoutes adds what concerns weights to the admin address.
func (g *gateway) weightsRoutes(mux *http.ServeMux, a *authority) {
	mux.HandleFunc("GET /api/v1/weights", func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, g.weightList()) })
	mux.HandleFunc("PUT /api/v1/weights/{tenant}", a.guard(g.setWeight))
	mux.HandleFunc("DELETE /api/v1/weights/{tenant}", a.guard(g.deleteWeight))
}

// applyWeights puts the live weights over those of the environment.
func (g *gateway) applyWeights(live []limits.Weight) {
	weights := maps.Clone(g.cfg.Shaper.Weights)
	if weights == nil {
		weights = shaper.Weights{}
	}
	for _, w := range live {
		weights[w.Tenant] = uint32(w.Weight) // checked
	}
	g.shaper.SetWeights(weights)
	g.backlog.SetWeights(weights)
}

// weightList sorts by tenant, the live one first.
func (g *gateway) weightList() WeightList {
	list := WeightList{Weights: []ListedWeight{}, Broken: g.liveLimits.BrokenWeights()}
	if list.Broken == nil {
		list.Broken = []limits.BrokenEntry{}
	}
	if err := g.liveLimits.WeightsStale(); err != nil {
		list.Stale = err.Error()
	}
	taken := map[string]bool{}
	for _, w := range g.liveLimits.Weights() {
		taken[w.Tenant] = true
		list.Weights = append(list.Weights, ListedWeight{
			Tenant: w.Tenant, Weight: w.Weight, Source: FromLive, InForce: true, Author: w.Author, Reason: w.Reason, At: w.At,
		})
	}
	for tenant, weight := range g.cfg.Shaper.Weights {
		list.Weights = append(list.Weights, ListedWeight{
			Tenant: tenant, Weight: uint64(weight), Source: FromEnvironment, InForce: !taken[tenant],
		})
	}
	slices.SortFunc(list.Weights, func(a, b ListedWeight) int {
		return cmp.Or(cmp.Compare(a.Tenant, b.Tenant), cmp.Compare(b.Source, a.Source))
	})
	return list
}

func (g *gateway) setWeight(w http.ResponseWriter, r *http.Request) {
	var body struct {
		Weight *uint64 `json:"weight"`
		Author string  `json:"author"`
		Reason string  `json:"reason"`
	}
	if !readJSON(w, r, maxBody, &body) {
		return
	}
	if body.Weight == nil {
		writeProblem(w, http.StatusBadRequest, "weight: is missing")
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), changeTimeout)
	defer cancel()
	stored, err := g.liveLimits.SetWeight(ctx, limits.Weight{
		Tenant: r.PathValue("tenant"), Weight: *body.Weight, Author: cmp.Or(body.Author, apiAuthor), Reason: body.Reason,
	})
	if err != nil {
		writeWeightProblem(w, err)
		return
	}
	g.log.Info("a weight was set", "tenant", stored.Tenant, "weight", stored.Weight, "author", stored.Author, "reason", stored.Reason)
	writeJSON(w, stored)
}

func (g *gateway) deleteWeight(w http.ResponseWriter, r *http.Request) {
	tenant := r.PathValue("tenant")
	ctx, cancel := context.WithTimeout(r.Context(), changeTimeout)
	defer cancel()
	if err := g.liveLimits.DeleteWeight(ctx, tenant); err != nil {
		writeWeightProblem(w, err)
		return
	}
	g.log.Info("a weight was deleted", "tenant", tenant)
	w.WriteHeader(http.StatusNoContent)
}

func writeWeightProblem(w http.ResponseWriter, err error) {
	if errors.Is(err, limits.ErrNoWeight) {
		writeProblem(w, http.StatusNotFound, err.Error())
		return
	}
	writeChangeProblem(w, err)
}
