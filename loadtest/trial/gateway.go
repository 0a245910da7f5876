package trial

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"strconv"

	"github.com/flowgate/flowgate/cmd/flowgate/app"
	"github.com/flowgate/flowgate/cmd/flowgate/settings"
	"github.com/flowgate/flowgate/internal/consumers"
)

// Command is the argument with which a load test starts itself as the gateway; the
// database's address follows it.
const Command = "gateway"

// Gateway is the flowgate that a trial starts in a process of its own: all of it, with a
// destination that also tells when each delivery was released. It ends with ctx, or
// with alive, which the process that started it holds open.
func Gateway(ctx context.Context, environ []string, alive io.Reader, url string) error {
	cfg, err := settings.Load(environ)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		_, _ = io.Copy(io.Discard, alive)
		cancel()
	}()
	concurrency := int(cfg.Consumer.Concurrency)
	d := &destination{url: url, client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: concurrency + 1}}}
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))
	a, err := app.New(app.Options{Config: cfg, Logger: log, Destination: d})
	if err != nil {
		return err
	}
	return a.Run(ctx)
}

// destination hands deliveries to the trial.
type destination struct {
	url    string
	client *http.Client
}

// The headers of a delivery beside the gateway's own.
const (
	idHeader, tenantHeader, seqHeader, attemptHeader = "Flowgate-Id", "Flowgate-Tenant", "Flowgate-Seq", "Flowgate-Attempt"
	admittedHeader, releasedHeader, processHeader    = "Trial-Admitted", "Trial-Released", "Trial-Process"
)

func (d *destination) Deliver(ctx context.Context, batch []consumers.Delivery) []error {
	verdicts := make([]error, len(batch))
	for i, one := range batch {
		verdicts[i] = d.deliver(ctx, one)
	}
	return verdicts
}

func (d *destination) deliver(ctx context.Context, one consumers.Delivery) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, d.url, bytes.NewReader(one.Payload))
	if err != nil {
		return err
	}
	for name, value := range map[string]string{
		idHeader: one.ID, tenantHeader: one.Tenant, seqHeader: strconv.FormatUint(one.Seq, 10), attemptHeader: strconv.Itoa(one.Attempt),
		admittedHeader: strconv.FormatInt(one.AdmittedAt.UnixNano(), 10), releasedHeader: strconv.FormatInt(one.ReleasedAt.UnixNano(), 10),
		processHeader: strconv.Itoa(os.Getpid()),
	} {
		req.Header.Set(name, value)
	}
	r, err := d.client.Do(req)
	if err != nil {
		return fmt.Errorf("the database: %w", err)
	}
	defer func() { _, _ = io.Copy(io.Discard, r.Body); _ = r.Body.Close() }()
	switch r.StatusCode {
	case http.StatusOK:
		return nil
	case http.StatusServiceUnavailable:
		return consumers.Overloaded(0, fmt.Errorf("the database: %s", r.Status))
	}
	return fmt.Errorf("the database: %s", r.Status)
}

func (d *destination) Close() error { return nil }
