package app

import (
	"encoding/json"
	"net/http"

	"github.com/flowgate/flowgate/internal/algorithms"
	"github.com/flowgate/flowgate/internal/history"
)

// History is the answer to GET /api/v1/history; with ?last=<n> of that many samples.
type History struct {
	EverySeconds float64 `json:"every_seconds"`
	// LatencyBounds are the longest latencies of all steps but the last, in seconds.
	LatencyBounds []float64        `json:"latency_bounds"`
	Samples       []history.Sample `json:"samples"` // oldest first
}

func (g *gateway) showHistory(w http.ResponseWriter, r *http.Request) {
	last, err := number(r.URL.Query(), "last", keptSamples, 1, keptSamples)
	if err != nil {
		writeProblem(w, http.StatusBadRequest, err.Error())
		return
	}
	answer := History{EverySeconds: sampleEvery.Seconds(), Samples: g.history.All()}
	answer.Samples = answer.Samples[max(0, len(answer.Samples)-last):]
	for _, bound := range algorithms.SpanBounds() {
		answer.LatencyBounds = append(answer.LatencyBounds, bound.Seconds())
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	// In one line: indented it is twice as long. A failure is the client's leaving.
	_ = json.NewEncoder(w).Encode(answer)
}
