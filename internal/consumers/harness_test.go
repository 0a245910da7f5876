package consumers

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
)

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

// aDelivery is an ordinary delivery of acme's, with the number in its id.
func aDelivery(n int) Delivery {
	admitted := time.Date(2026, 11, 12, 13, 14, 15, 161_718_000, time.UTC)
	return Delivery{
		ID: fmt.Sprintf("acme/%d", n), Tenant: "acme", Topic: "orders.new", Seq: uint64(n), Attempt: 1,
		Payload:    fmt.Appendf(nil, "payload %d", n),
		AdmittedAt: admitted, ReleasedAt: admitted.Add(1500 * time.Microsecond),
	}
}

// deliveries are n of them, from 1.
func deliveries(n int) []Delivery {
	ds := make([]Delivery, n)
	for i := range ds {
		ds[i] = aDelivery(i + 1)
	}
	return ds
}

// kinds are the verdicts that answers come to.
func kinds(answers []error) []VerdictKind {
	ks := make([]VerdictKind, len(answers))
	for i, err := range answers {
		ks[i] = Judge(err).Kind
	}
	return ks
}

// wantKinds checks the verdicts on a batch.
func wantKinds(t *testing.T, answers []error, want ...VerdictKind) {
	t.Helper()
	if diff := cmp.Diff(want, kinds(answers)); diff != "" {
		t.Fatalf("verdicts (-want +got):\n%s\n%v", diff, errors.Join(answers...))
	}
}

// deliver makes one delivery and checks its verdict.
func deliver(t *testing.T, d Destination, m Delivery, want VerdictKind) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	answers := d.Deliver(ctx, []Delivery{m})
	wantKinds(t, answers, want)
	return answers[0]
}

// wantError checks that err says all of the words.
func wantError(t *testing.T, err error, words ...string) {
	t.Helper()
	if err == nil {
		t.Fatalf("no error; want one with %q", words)
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("error does not say %q:\n%v", w, err)
		}
	}
}

// sample reads one series from a registry: name{label="value",…} as an exporter
// shows it, 0 if it is not there. A histogram's is its count.
func sample(t *testing.T, reg prometheus.Gatherer, series string) float64 {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, fmt.Sprintf("%s=%q", l.GetName(), l.GetValue()))
			}
			name := f.GetName()
			if len(labels) > 0 {
				name += "{" + strings.Join(labels, ",") + "}"
			}
			if name != series {
				continue
			}
			switch {
			case m.GetCounter() != nil:
				return m.GetCounter().GetValue()
			case m.GetGauge() != nil:
				return m.GetGauge().GetValue()
			}
			return float64(m.GetHistogram().GetSampleCount())
		}
	}
	return 0
}

// wantSamples checks series of a registry.
func wantSamples(t *testing.T, reg prometheus.Gatherer, want map[string]float64) {
	t.Helper()
	for series, value := range want {
		if got := sample(t, reg, series); got != value {
			t.Errorf("%s is %v, want %v", series, got, value)
		}
	}
}
