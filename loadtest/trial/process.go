package trial

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/flowgate/flowgate/cmd/flowgate/app"
)

// process is the gateway's, over all its lives.
type process struct {
	program          string
	url              string // of the database
	environ          []string
	output           io.Writer
	nats, web, admin string

	// lost hears of a life that ends by itself.
	lost func(error)

	cmd   *exec.Cmd
	alive io.Closer
	ended chan error
	// asked says that this life is being ended.
	asked *atomic.Bool
}

// freeAddresses are ones of loopback that nothing listened on just now.
func freeAddresses(n int) ([]string, error) {
	var found []string
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer func() { _ = l.Close() }() // all at once, or one would be found twice
		found = append(found, l.Addr().String())
	}
	return found, nil
}

// start returns once producers are served.
func (p *process) start(ctx context.Context) error {
	// Not bound to ctx: it is stopped in order.
	p.cmd = exec.Command(p.program, Command, p.url)
	p.cmd.Env = p.environ
	p.cmd.Stdout, p.cmd.Stderr = p.output, p.output
	alive, err := p.cmd.StdinPipe()
	if err != nil {
		return err
	}
	p.alive = alive
	if err := p.cmd.Start(); err != nil {
		return err
	}
	p.ended, p.asked = make(chan error, 1), new(atomic.Bool)
	go func(cmd *exec.Cmd, ended chan error, asked *atomic.Bool) {
		err := cmd.Wait()
		if !asked.Load() {
			p.lost(fmt.Errorf("the gateway ended by itself: %s", cmd.ProcessState))
		}
		ended <- err
	}(p.cmd, p.ended, p.asked)
	return p.awaitReady(ctx)
}

func (p *process) awaitReady(ctx context.Context) error {
	for end := time.Now().Add(time.Minute); ; {
		if r, err := p.get(ctx, "/readyz"); err == nil {
			_ = r.Body.Close()
			if r.StatusCode == http.StatusOK {
				return nil
			}
		}
		select {
		case err := <-p.ended:
			p.ended <- err
			return fmt.Errorf("the gateway ended before it was ready: %w", err)
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(10 * time.Millisecond):
		}
		if time.Now().After(end) {
			return errors.New("the gateway is not ready after a minute")
		}
	}
}

func (p *process) running() bool { return p.cmd != nil }

func (p *process) get(ctx context.Context, path string) (*http.Response, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+p.admin+path, nil)
	if err != nil {
		cancel()
		return nil, err
	}
	r, err := http.DefaultClient.Do(req)
	if err != nil {
		cancel()
		return nil, err
	}
	r.Body = readBody{r.Body, cancel}
	return r, nil
}

// readBody ends its request's context when it is closed.
type readBody struct {
	io.ReadCloser
	cancel func()
}

func (b readBody) Close() error { defer b.cancel(); return b.ReadCloser.Close() }

func (p *process) status(ctx context.Context) (s app.Status, err error) {
	r, err := p.get(ctx, "/api/v1/status")
	if err != nil {
		return s, err
	}
	defer func() { _ = r.Body.Close() }()
	return s, json.NewDecoder(r.Body).Decode(&s)
}

// deadLetters are the ids of all dead letters.
func (p *process) deadLetters(ctx context.Context) (map[string]bool, error) {
	ids := map[string]bool{}
	for from := uint64(1); ; {
		r, err := p.get(ctx, fmt.Sprintf("/api/v1/dead-letters?order=oldest&limit=1000&from=%d", from))
		if err != nil {
			return nil, err
		}
		var list app.DeadLetterList
		err = json.NewDecoder(r.Body).Decode(&list)
		_ = r.Body.Close()
		if err != nil {
			return nil, err
		}
		for _, d := range list.DeadLetters {
			ids[d.ID] = true
		}
		if list.Next == nil {
			return ids, nil
		}
		from = list.Next.From
	}
}

// use is what the process holds.
type use struct {
	rss               float64 // bytes
	goroutines, files int
}

func (p *process) use(ctx context.Context) (u use, err error) {
	r, err := p.get(ctx, "/metrics")
	if err != nil {
		return u, err
	}
	defer func() { _ = r.Body.Close() }()
	text, err := io.ReadAll(r.Body)
	if err != nil {
		return u, err
	}
	read := func(name string) (v float64) {
		for line := range strings.Lines(string(text)) {
			if value, ok := strings.CutPrefix(line, name+" "); ok {
				v, err = strconv.ParseFloat(strings.TrimSpace(value), 64)
				return v
			}
		}
		err = fmt.Errorf("no %s among the metrics", name)
		return 0
	}
	return use{read("process_resident_memory_bytes"), int(read("go_goroutines")), int(read("process_open_fds"))}, err
}

// kill ends it as a crash does.
func (p *process) kill() {
	p.asked.Store(true)
	_ = p.cmd.Process.Kill()
	<-p.ended
	_ = p.alive.Close()
	p.cmd = nil
}

// stop ends it in order.
func (p *process) stop() error {
	defer func() { _ = p.alive.Close(); p.cmd = nil }()
	p.asked.Store(true)
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	select {
	case err := <-p.ended:
		if err != nil {
			return fmt.Errorf("the gateway was stopped in order and ended with: %w", err)
		}
		return nil
	case <-time.After(30 * time.Second):
		_ = p.cmd.Process.Kill()
		<-p.ended
		return errors.New("the gateway was stopped in order and was still there after 30 s")
	}
}
