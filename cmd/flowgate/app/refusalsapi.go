package app

import (
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/flowgate/flowgate/internal/backpressure"
	"github.com/flowgate/flowgate/internal/history"
	"github.com/flowgate/flowgate/internal/ingress"
)

// RefusalList is the answer to GET /api/v1/refusals.
type RefusalList struct {
	Tenant   string         `json:"tenant"`   // whose they are; empty: all
	Refusals []ShownRefusal `json:"refusals"` // newest first
}

// ShownRefusal is why one message was refused.
type ShownRefusal struct {
	At     time.Time `json:"at"`
	Tenant string    `json:"tenant"` // empty if the subject names none
	Reason string    `json:"reason"`
	Scope  string    `json:"scope,omitempty"`
	// Rule is the limit or the mark that refused; Detail what the producer was told.
	Rule   string `json:"rule"`
	Detail string `json:"detail"`
	// Depth is that of the backlog then.
	Depth uint64 `json:"depth"`
	// RetryAfterMS is null where waiting cannot help.
	RetryAfterMS *int64 `json:"retry_after_ms"`
	ID           string `json:"id,omitempty"`
	Transport    string `json:"transport"`
	// Enforced is false for what was admitted all the same, in shadow.
	Enforced bool `json:"enforced"`
}

// doorWitness notes what the front door decides.
type doorWitness struct{ g *gateway }

// Admitted implements ingress.Witness.
func (w doorWitness) Admitted(now int64, tenant string) { w.g.traffic.Admitted(now, tenant) }

// Refused implements ingress.Witness.
func (w doorWitness) Refused(now int64, e ingress.Evidence) {
	depth, signals := w.g.backlog.Pressure()
	r := e.Refusal
	if e.Tenant != "" {
		w.g.traffic.Refused(now, e.Tenant, string(r.Reason))
	}
	w.g.refusals.Add(history.Refusal{
		At: now, Tenant: e.Tenant, ID: e.ID, Transport: e.Transport, Enforced: e.Enforced,
		Reason: string(r.Reason), Scope: r.Scope, Rule: r.Limit, Text: r.Text, Wait: r.Wait,
		Depth: depth, Signals: uint8(signals),
	})
}

// Bounds of what is shown at once.
const (
	shownRefusals = 20
	mostRefusals  = 100
)

func (g *gateway) listRefusals(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	limit, err := number(q, "limit", shownRefusals, 1, mostRefusals)
	if err != nil {
		writeProblem(w, http.StatusBadRequest, err.Error())
		return
	}
	tenant := q.Get("tenant")
	if tenant != "" && !ingress.ValidTenant(tenant) {
		writeProblem(w, http.StatusBadRequest, fmt.Sprintf("tenant: %q is no tenant: 1 to 64 of A-Z a-z 0-9 _ -", tenant))
		return
	}
	list := RefusalList{Tenant: tenant, Refusals: []ShownRefusal{}}
	for _, f := range g.refusals.Last(tenant, limit) {
		list.Refusals = append(list.Refusals, g.shownRefusal(f))
	}
	writeJSON(w, list)
}

func (g *gateway) shownRefusal(f history.Refusal) ShownRefusal {
	s := ShownRefusal{
		At: time.Unix(0, f.At).UTC(), Tenant: f.Tenant, Reason: f.Reason, Scope: f.Scope, Rule: f.Rule, Detail: f.Text,
		Depth: f.Depth, ID: f.ID, Transport: f.Transport, Enforced: f.Enforced,
	}
	if f.Wait >= 0 {
		ms := int64((f.Wait + time.Millisecond - 1) / time.Millisecond)
		s.RetryAfterMS = &ms
	}
	marks := g.cfg.Backpressure.Marks()
	switch signals := backpressure.Signals(f.Signals).Names(); ingress.Reason(f.Reason) {
	case ingress.TenantBacklogged:
		s.Rule = "backpressure tenant max " + g.cfg.Backpressure.TenantMax.String()
	case ingress.Backlogged:
		switch {
		case f.Depth >= marks.Max:
			s.Rule = fmt.Sprintf("backpressure max %d", marks.Max)
		case len(signals) == 0:
			s.Rule = "backpressure: places are promised to others"
		case len(signals) == 1 && signals[0] == backpressure.Depth.String():
			s.Rule = fmt.Sprintf("backpressure high %d", marks.High)
		default:
			s.Rule = "backpressure high: " + strings.Join(signals, ", ")
		}
	}
	return s
}

// number reads a whole number of a query.
func number(q url.Values, name string, otherwise, least, most int) (int, error) {
	text := q.Get(name)
	if text == "" {
		return otherwise, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < least || n > most {
		return 0, fmt.Errorf("%s: %q is not a whole number from %d to %d", name, text, least, most)
	}
	return n, nil
}
