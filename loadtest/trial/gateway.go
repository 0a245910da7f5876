package trial

import (
	"bytes"
	"context"
	"errors"
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

// The headers of a delivery beside the gateway's own; of a batch each has a value a message.
const (
	idHeader, tenantHeader, seqHeader, attemptHeader = "Flowgate-Id", "Flowgate-Tenant", "Flowgate-Seq", "Flowgate-Attempt"
	admittedHeader, releasedHeader, processHeader    = "Trial-Admitted", "Trial-Released", "Trial-Process"
	bytesHeader                                      = "Trial-Bytes"
)

// What is said of each row of a call, a byte.
const (
	rowTaken = '1'
	rowBad   = '0'
)

// Deliver makes one call, whatever the batch holds, as a transaction is one.
func (d *destination) Deliver(ctx context.Context, batch []consumers.Delivery) []error {
	verdicts := make([]error, len(batch))
	taken, err := d.call(ctx, batch)
	for i := range verdicts {
		switch {
		case err != nil:
			verdicts[i] = err
		case taken[i] != rowTaken:
			verdicts[i] = errors.New("the database: this row is not taken")
		}
	}
	return verdicts
}

// call tells of each row whether it is taken.
func (d *destination) call(ctx context.Context, batch []consumers.Delivery) (taken []byte, err error) {
	var body []byte
	header := http.Header{}
	for _, one := range batch {
		body = append(body, one.Payload...)
		for name, value := range map[string]string{
			idHeader: one.ID, tenantHeader: one.Tenant, seqHeader: strconv.FormatUint(one.Seq, 10), attemptHeader: strconv.Itoa(one.Attempt),
			admittedHeader: strconv.FormatInt(one.AdmittedAt.UnixNano(), 10), releasedHeader: strconv.FormatInt(one.ReleasedAt.UnixNano(), 10),
			processHeader: strconv.Itoa(os.Getpid()), bytesHeader: strconv.Itoa(len(one.Payload)),
		} {
			header[name] = append(header[name], value)
		}
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, d.url, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header = header
	r, err := d.client.Do(req)
	if err != nil {
		return nil, fmt.Errorf("the database: %w", err)
	}
	defer func() { _, _ = io.Copy(io.Discard, r.Body); _ = r.Body.Close() }()
	switch r.StatusCode {
	case http.StatusOK:
		taken = make([]byte, len(batch))
		if _, err := io.ReadFull(r.Body, taken); err != nil {
			return nil, fmt.Errorf("the database: %w", err)
		}
		return taken, nil
	case http.StatusServiceUnavailable:
		return nil, consumers.Overloaded(0, fmt.Errorf("the database: %s", r.Status))
	}
	return nil, fmt.Errorf("the database: %s", r.Status)
}

func (d *destination) Close() error { return nil }
