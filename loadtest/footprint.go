package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// measureIdle watches a gateway of its own process with nothing to do.
func measureIdle(ctx context.Context, short bool) ([]figure, error) {
	span := 10 * time.Second
	if short {
		span = time.Second
	}
	dir, err := os.MkdirTemp("", "flowgate-loadtest-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	path, err := buildGateway(ctx, dir)
	if err != nil {
		return nil, err
	}
	p, err := startInstance(ctx, path, []string{"FLOWGATE_DATA_DIR=" + filepath.Join(dir, "data"), "FLOWGATE_NATS_LISTEN=127.0.0.1:0",
		"FLOWGATE_ADMIN_LISTEN=off", "FLOWGATE_INGRESS_HTTP_LISTEN=127.0.0.1:0", "FLOWGATE_LOG_LEVEL=warn"})
	if err != nil {
		return nil, err
	}
	defer p.end()
	time.Sleep(3 * time.Second) // the start is no idling
	before, err := processorTime(p.cmd.Process.Pid)
	if err != nil {
		return nil, err
	}
	time.Sleep(span)
	after, err := processorTime(p.cmd.Process.Pid)
	if err != nil {
		return nil, err
	}
	resident, _, err := memory(p.cmd.Process.Pid)
	if err != nil {
		return nil, err
	}
	return []figure{
		{"RSS", float64(resident) / (1 << 20), "MiB", 0, 60},
		{"CPU, of a core", (after - before).Seconds() / span.Seconds() * 100, "%", 0, 1},
	}, nil
}

// memory is what a process holds resident, now and at most, in bytes.
func memory(pid int) (now, peak int64, err error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, 0, fmt.Errorf("this system does not tell a process's memory: %w", err)
	}
	for line := range strings.Lines(string(text)) {
		parts := strings.Fields(line)
		if len(parts) < 2 || parts[0] != "VmRSS:" && parts[0] != "VmHWM:" {
			continue
		}
		n, err := strconv.ParseInt(parts[1], 10, 64)
		if err != nil {
			return 0, 0, err
		}
		if parts[0] == "VmRSS:" {
			now = n << 10
		} else {
			peak = n << 10
		}
	}
	return now, peak, nil
}

// processorTime is what a process has used of the processor.
func processorTime(pid int) (time.Duration, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, fmt.Errorf("this system does not tell a process's time: %w", err)
	}
	_, rest, _ := strings.Cut(string(text), ") ")
	parts := strings.Fields(rest) // from the third field on
	if len(parts) < 13 {
		return 0, fmt.Errorf("/proc/%d/stat: %q", pid, text)
	}
	var ticks int64
	for _, s := range parts[11:13] {
		n, err := strconv.ParseInt(s, 10, 64)
		if err != nil {
			return 0, err
		}
		ticks += n
	}
	return time.Duration(ticks) * time.Second / 100, nil // USER_HZ
}
