package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// httpLoad is one kind of HTTP clients: each has a connection that it keeps, and
// sends the next message when it has the answer to the last.
type httpLoad struct{ clients, messages int }

// measureHTTP compares a bare net/http handler that publishes to a stream with the
// gateway's HTTP ingress, on the same server, one after the other, with the default
// pace behind it. The median of the pairs' ratios counts, since the two of a pair find
// the machine in the same mood; the order alternates.
func measureHTTP(ctx context.Context, short bool) ([]figure, error) {
	rounds, load := 9, httpLoad{clients: 48, messages: 1_500}
	if short {
		rounds, load.messages = 1, 50
	}
	var bare, gated, ratios []result
	for round := range rounds {
		b, g, err := httpRound(ctx, round%2 == 1, load)
		if err != nil {
			return nil, err
		}
		bare, gated = append(bare, b), append(gated, g)
		ratios = append(ratios, result{perSecond: g.perSecond / b.perSecond})
	}
	rate := func(r result) float64 { return r.perSecond }
	p99 := func(r result) float64 { return r.p99.Seconds() * 1e3 }
	clients := strconv.Itoa(load.clients) + " HTTP clients, "
	return []figure{
		{clients + "bare handler", median(bare, rate), "msg/s", 0, 0},
		{clients + "through flowgate", median(gated, rate), "msg/s", 0, 0},
		{"ratio", median(ratios, rate), "", 0.80, 0},
		{"p99, bare handler", median(bare, p99), "ms", 0, 0},
		{"p99, through flowgate", median(gated, p99), "ms", 0, 0},
	}, nil
}

// httpRound runs the load both ways on a fresh server.
func httpRound(ctx context.Context, gateFirst bool, load httpLoad) (bare, gated result, err error) {
	dir, err := os.MkdirTemp("", "flowgate-loadtest-")
	if err != nil {
		return bare, gated, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	conf := filepath.Join(dir, "nats.conf")
	if err := os.WriteFile(conf, []byte("listen: 127.0.0.1:-1\n"), 0o600); err != nil {
		return bare, gated, err
	}
	g, err := startGateway(ctx, filepath.Join(dir, "data"), discard{}, "FLOWGATE_NATS_CONFIG="+conf, "FLOWGATE_INGRESS_HTTP_LISTEN=127.0.0.1:0",
		"FLOWGATE_LIMIT_TENANT=token-bucket:1000000/s,burst=10000000", "FLOWGATE_BACKPRESSURE_HIGH=10000000", "FLOWGATE_BACKPRESSURE_MAX_BYTES=64GiB")
	if err != nil {
		return bare, gated, err
	}
	defer func() { err = errors.Join(err, g.stop()) }()
	// In the process, as the gateway's own connections are.
	nc, err := g.Connect()
	if err != nil {
		return bare, gated, err
	}
	defer nc.Close()
	addr, stop, err := bareHandler(ctx, nc)
	if err != nil {
		return bare, gated, err
	}
	defer stop()
	runs := []func() error{
		func() (err error) { bare, err = load.run(ctx, addr, "/acme/orders"); return err },
		func() (err error) { gated, err = load.run(ctx, g.HTTPAddr(), "/v1/messages/acme/orders"); return err },
	}
	if gateFirst {
		runs[0], runs[1] = runs[1], runs[0]
	}
	return bare, gated, errors.Join(runs[0](), runs[1]())
}

// bareHandler is what one would write without a gateway: a handler that reads the
// body, publishes it and answers with the acknowledgement.
func bareHandler(ctx context.Context, nc *nats.Conn) (addr string, stop func(), err error) {
	js, err := jetstream.New(nc)
	if err != nil {
		return "", nil, err
	}
	// As the backlog is, so that only the way there differs.
	_, err = js.CreateStream(ctx, jetstream.StreamConfig{
		Name: "RAW", Subjects: []string{"raw.>"}, Retention: jetstream.WorkQueuePolicy,
		Discard: jetstream.DiscardNew, MaxMsgs: 100_000_000, AllowDirect: true, Duplicates: 2 * time.Minute,
	})
	if err != nil {
		return "", nil, err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	handler := func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 1<<20))
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		m := &nats.Msg{Subject: "raw" + strings.ReplaceAll(r.URL.Path, "/", "."), Data: body, Header: nats.Header{}}
		if v := r.Header["Content-Type"]; len(v) > 0 {
			m.Header["Content-Type"] = v
		}
		ack, err := js.PublishMsg(r.Context(), m)
		if err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusAccepted)
		_ = json.NewEncoder(w).Encode(ack)
	}
	s := &http.Server{Handler: http.HandlerFunc(handler), ReadHeaderTimeout: 5 * time.Second}
	go func() { _ = s.Serve(l) }()
	return l.Addr().String(), func() { _ = s.Close() }, nil
}

// run sends 256-byte messages. The clients write ready-made requests and look at no
// more of an answer than they must: they share the processor with what is measured.
func (l httpLoad) run(ctx context.Context, addr, path string) (result, error) {
	body := bytes.Repeat([]byte("x"), 256)
	request := append(fmt.Appendf(nil, "POST %s HTTP/1.1\r\nHost: %s\r\nContent-Type: text/plain\r\nContent-Length: %d\r\n\r\n", path, addr, len(body)), body...)
	latencies := make([][]time.Duration, l.clients)
	errs := make([]error, l.clients)
	var wg sync.WaitGroup
	start := time.Now()
	for i := range l.clients {
		wg.Go(func() { latencies[i], errs[i] = l.client(ctx, addr, request) })
	}
	wg.Wait()
	r := result{perSecond: float64(l.clients*l.messages) / time.Since(start).Seconds()}
	r.p99 = percentile99(latencies)
	return r, errors.Join(errs...)
}

func (l httpLoad) client(ctx context.Context, addr string, request []byte) ([]time.Duration, error) {
	var d net.Dialer
	c, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	defer func() { _ = c.Close() }()
	took := make([]time.Duration, 0, l.messages)
	in := bufio.NewReader(c)
	for range l.messages {
		start := time.Now()
		if _, err := c.Write(request); err != nil {
			return nil, err
		}
		if err := accepted(in); err != nil {
			return nil, err
		}
		took = append(took, time.Since(start))
	}
	return took, nil
}

// accepted reads one answer, which must be 202 and have a length.
func accepted(in *bufio.Reader) error {
	status, err := in.ReadSlice('\n')
	if err != nil {
		return err
	}
	if !bytes.HasPrefix(status, []byte("HTTP/1.1 202 ")) {
		return fmt.Errorf("the answer was %q", status)
	}
	length := -1
	for {
		line, err := in.ReadSlice('\n')
		if err != nil {
			return err
		}
		if line = bytes.TrimSpace(line); len(line) == 0 {
			break
		}
		if v, ok := bytes.CutPrefix(line, []byte("Content-Length: ")); ok {
			if length, err = strconv.Atoi(string(v)); err != nil {
				return err
			}
		}
	}
	if length < 0 {
		return errors.New("the answer has no length")
	}
	_, err = in.Discard(length)
	return err
}
