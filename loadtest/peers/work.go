package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/flowgate/flowgate/internal/consumers/brokertest"
	"github.com/flowgate/flowgate/loadtest/database"
)

// Each phase of each contestant runs in a process of its own, so that none inherits the
// memory, the goroutines or the connections of another, and one can be killed.

// work is that process: it prints a result.
func work(ctx context.Context, args []string, out io.Writer) error {
	f := flag.NewFlagSet("peers work", flag.ContinueOnError)
	name := f.String("peer", "", "")
	what := f.String("phase", "", "")
	dir := f.String("dir", "", "")
	broker := f.String("broker", "", "")
	ledger := f.String("ledger", "", "")
	short := f.Bool("short", false, "")
	if err := f.Parse(args); err != nil {
		return err
	}
	c, err := find(*name)
	if err != nil {
		return err
	}
	var r result
	switch *what {
	case ceiling:
		length := 8 * time.Second
		if *short {
			length = time.Second
		}
		r, err = measureCeiling(ctx, c, length, *dir, *broker)
	case crash, recovery:
		var log *os.File
		if log, err = os.OpenFile(*ledger, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600); err != nil {
			return err
		}
		defer func() { _ = log.Close() }()
		p := crashPhase(*short)
		if *what == recovery {
			p.Length = 0
			r, err = recoverFrom(ctx, c, p, *dir, *broker, log)
		} else {
			r, err = measure(ctx, c, p, *dir, *broker, log)
		}
	default:
		var p phase
		for _, one := range phases(*short) {
			if one.Name == *what {
				p = one
			}
		}
		if p.Name == "" {
			return fmt.Errorf("no phase %q", *what)
		}
		r, err = measure(ctx, c, p, *dir, *broker, nil)
	}
	if err != nil {
		return err
	}
	return json.NewEncoder(out).Encode(r)
}

const recovery = "recovery"

// recoverFrom serves what an earlier process left, until nothing comes any more.
func recoverFrom(ctx context.Context, c contestant, p phase, dir, broker string, ledger *os.File) (_ result, err error) {
	db, err := database.New(bears)
	if err != nil {
		return result{}, err
	}
	r := newRecord()
	r.ledger = ledger
	one := c.make()
	defer func() { err = errors.Join(err, one.Close()) }()
	if err := one.Start(ctx, setup{Dir: dir, Broker: broker, Rate: perSecond, Backlog: p.Backlog, Workers: workers, Ahead: ahead * workers, Write: r.wrap(db.Do)}); err != nil {
		return result{}, fmt.Errorf("start after the kill: %w", err)
	}
	r.began = time.Now()
	// What it owes is in the ledger: here, it has settled when nothing comes any more.
	settled := false
	for last := time.Duration(0); !settled && r.since() < p.Drain && ctx.Err() == nil; last, _ = r.last() {
		settled = r.since()-last > p.Still
		time.Sleep(50 * time.Millisecond)
	}
	return result{Phase: recovery, Settled: settled}, ctx.Err()
}

// contest runs one contestant through its phases, one after the other. A broker that is a
// program of its own serves them all, and so is warm; each finds an empty queue.
func contest(ctx context.Context, c contestant, short bool, progress io.Writer) (results []result, version string, err error) {
	version = c.Version()
	run := func(b *brokertest.Broker) error {
		for _, what := range c.phases() {
			url := ""
			if b != nil {
				url = b.URL()
				if version, err = freshQueue(url); err != nil {
					return fmt.Errorf("%s: %w", what, err)
				}
			}
			fmt.Fprintf(progress, "%s: %s\n", c.Name, what)
			var r result
			if what == crash {
				r, err = killed(ctx, c, short, b)
			} else {
				r, err = process(ctx, c, what, short, url)
			}
			if err != nil {
				return fmt.Errorf("%s: %w", what, err)
			}
			r.Peer = c.Name
			results = append(results, r)
		}
		return nil
	}
	if c.rabbitMQ {
		err = withBroker(rabbitMQ, run)
	} else {
		err = run(nil)
	}
	return results, version, err
}

// child prepares a process for a phase.
func child(ctx context.Context, c contestant, what, dir, broker string, short bool, more ...string) (*exec.Cmd, *bytes.Buffer, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, nil, err
	}
	args := []string{"work", "-peer=" + c.Name, "-phase=" + what, "-dir=" + filepath.Join(dir, "data"), "-broker=" + broker, fmt.Sprintf("-short=%t", short)}
	cmd := exec.CommandContext(ctx, self, append(args, more...)...)
	out := &bytes.Buffer{}
	cmd.Stdout, cmd.Stderr = out, os.Stderr
	return cmd, out, os.MkdirAll(filepath.Join(dir, "data"), 0o700)
}

// process runs a phase in a process of its own and watches its memory.
func process(ctx context.Context, c contestant, what string, short bool, broker string) (r result, err error) {
	dir, done, err := scratch()
	if err != nil {
		return r, err
	}
	defer done()
	cmd, out, err := child(ctx, c, what, dir, broker, short)
	if err != nil {
		return r, err
	}
	watching, stop := context.WithCancel(ctx)
	peak := watchResident(watching)
	err = cmd.Run()
	stop()
	held := peak()
	if err != nil {
		return r, err
	}
	err = json.Unmarshal(out.Bytes(), &r)
	r.MiB = held
	return r, err
}

// killed runs the overload and kills everything in it with SIGKILL: the peer's process
// with its producers, and the broker. Then all is started again on what is on the disk.
func killed(ctx context.Context, c contestant, short bool, b *brokertest.Broker) (r result, err error) {
	dir, done, err := scratch()
	if err != nil {
		return r, err
	}
	defer done()
	after := 8 * time.Second
	if short {
		after = 1500 * time.Millisecond
	}
	url := ""
	if b != nil {
		url = b.URL()
	}
	path := filepath.Join(dir, "ledger")
	first, _, err := child(ctx, c, crash, dir, url, short, "-ledger="+path)
	if err != nil {
		return r, err
	}
	if err := first.Start(); err != nil {
		return r, err
	}
	ended := make(chan error, 1)
	go func() { ended <- first.Wait() }()
	select {
	case <-time.After(after):
	case err := <-ended:
		return r, fmt.Errorf("it ended before it was killed: %w", cmp.Or(err, ctx.Err(), errors.New("with no error")))
	}
	if b != nil {
		b.Kill()
	}
	if err := first.Process.Kill(); err != nil {
		return r, fmt.Errorf("it ended before it was killed: %w", err)
	}
	<-ended
	if b != nil {
		b.Start()
	}
	second, out, err := child(ctx, c, recovery, dir, url, short, "-ledger="+path)
	if err != nil {
		return r, err
	}
	if err := second.Run(); err != nil {
		return r, err
	}
	var then result
	if err := json.Unmarshal(out.Bytes(), &then); err != nil {
		return r, err
	}
	f, err := os.Open(path)
	if err != nil {
		return r, err
	}
	defer func() { _ = f.Close() }()
	return readLedger(f, then.Settled)
}

// readLedger compares what was promised with what came; settled tells whether the second
// life had nothing left to do.
func readLedger(f io.Reader, settled bool) (result, error) {
	promised, came := map[int]bool{}, map[int]int{}
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		var what rune
		var id int
		if _, err := fmt.Sscanf(lines.Text(), "%c %d", &what, &id); err != nil {
			return result{}, fmt.Errorf("ledger: %q: %w", lines.Text(), err)
		}
		if what == 'a' {
			promised[id] = true
		} else {
			came[id]++
		}
	}
	if err := lines.Err(); err != nil {
		return result{}, fmt.Errorf("ledger: %w", err)
	}
	if len(promised) == 0 {
		return result{}, errors.New("nothing was accepted before the kill")
	}
	r := result{Phase: crash, Settled: settled, Accepted: len(promised)}
	for id := range promised {
		if came[id] > 0 {
			r.Delivered++
		} else {
			r.Missing++
		}
	}
	for _, n := range came {
		r.Repeats += n - 1
	}
	return r, nil
}

// scratch is a directory that is there until done.
func scratch() (dir string, done func(), err error) {
	dir, err = os.MkdirTemp("", "flowgate-peers-")
	return dir, func() { _ = os.RemoveAll(dir) }, err
}
