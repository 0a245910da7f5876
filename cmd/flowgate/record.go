package main

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/flowgate/flowgate/internal/arrivals"
	"github.com/flowgate/flowgate/internal/units"
)

const recordHelp = `  --for=<duration>  stop after so long, like 1h; otherwise when interrupted
` + addrHelp + `
Every try is written, admitted or refused: when it came, tenant, topic, bytes, and whether its message had come before.
No payload and no id is. A file whose name ends in .gz is packed; - is standard output. An existing file is not overwritten.
`

func recordCommand() command {
	return command{
		name: "record", args: "[--for=<duration>] <file.csv[.gz]>", run: cli.record,
		meaning: "write down what comes to a running gateway, for flowgate simulate",
		more:    recordHelp,
	}
}

func (c cli) record(ctx context.Context, f *flag.FlagSet, args []string) error {
	length := f.String("for", "", "stop after so long")
	client := c.addrFlag(f)
	words, err := parseAll(f, args)
	if err != nil {
		return err
	}
	if len(words) != 1 {
		return usageError{errors.New("one file is needed, or - for standard output")}
	}
	path, wanted := "/api/v1/arrivals", time.Duration(0)
	if *length != "" {
		if wanted, err = units.ParseDuration(*length); err == nil && wanted == 0 {
			err = errors.New("it must be above 0")
		}
		if err != nil {
			return usageError{fmt.Errorf("--for: %w", err)}
		}
		path += "?for=" + wanted.String() // the gateway ends it, so that nothing is left on the way
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, wanted+overdue)
		defer cancel()
	}
	if _, err := os.Lstat(words[0]); err == nil && words[0] != "-" {
		return fmt.Errorf("%s is there already; name another file", words[0])
	}
	gateway, err := client()
	if err != nil {
		return err
	}
	stream, err := gateway.stream(ctx, path)
	if err != nil {
		if ctx.Err() != nil {
			return errors.New("interrupted before the recording began")
		}
		return err
	}
	defer func() { _ = stream.Close() }()
	in := bufio.NewReaderSize(stream, 64<<10)
	head, err := in.ReadSlice('\n')
	if err != nil || !bytes.Equal(head, arrivals.AppendHead(nil)) {
		return gateway.other("it sends no recording")
	}
	out := c.stdout
	var file *os.File
	if words[0] != "-" {
		if file, err = os.OpenFile(words[0], os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644); err != nil {
			return err
		}
		out = file
	}
	kept, err := keep(out, strings.HasSuffix(words[0], ".gz"), head, in)
	if file != nil {
		err = errors.Join(err, file.Close())
	}
	whole := wanted > 0 && kept.until >= wanted
	if err == nil && !whole && !errors.Is(ctx.Err(), context.Canceled) {
		err = kept.end
	}
	if err != nil {
		return fmt.Errorf("the recording ended early, after %s tries: %w", grouped(uint64(kept.tries)), err)
	}
	fmt.Fprintf(c.stderr, "%s tries in %s\n", grouped(uint64(kept.tries)), kept.until.Round(time.Millisecond))
	return nil
}

// overdue is how long after its time a recording that the gateway was to end is given up.
const overdue = 10 * time.Second

// kept is what was written of a recording, and why no more came.
type kept struct {
	tries int
	until time.Duration
	end   error
}

// keep writes whole lines until no more come; an error is one of writing.
func keep(out io.Writer, packed bool, head []byte, in *bufio.Reader) (k kept, err error) {
	plain := bufio.NewWriterSize(out, 64<<10)
	flush := plain.Flush
	to := io.Writer(plain)
	if packed {
		z := gzip.NewWriter(plain)
		to, flush = z, func() error { return errors.Join(z.Flush(), plain.Flush()) }
		defer func() { err = errors.Join(err, z.Close(), plain.Flush()) }()
	}
	if _, err := to.Write(head); err != nil {
		return k, err
	}
	for {
		line, err := in.ReadSlice('\n')
		if err != nil {
			k.end = err
			return k, flush()
		}
		if line[0] != '#' {
			k.tries++
		} else if until, ok, err := arrivals.Until(string(line)); ok && err == nil {
			k.until = until
		}
		if _, err := to.Write(line); err != nil {
			return k, err
		}
		if in.Buffered() == 0 { // a second's are there
			if err := flush(); err != nil {
				return k, err
			}
		}
	}
}

// stream asks for what does not end; the caller closes it.
func (a *adminClient) stream(ctx context.Context, path string) (io.ReadCloser, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, a.base+path, nil)
	if err != nil {
		return nil, fmt.Errorf("ask %s: %w", a.base, err)
	}
	a.http.Timeout = 0
	answer, err := a.send(r)
	if err != nil {
		return nil, err
	}
	if answer.StatusCode == http.StatusOK {
		return answer.Body, nil
	}
	defer func() { _ = answer.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(answer.Body, 64<<10))
	if err != nil {
		return nil, a.unanswered(r.Method, path, err)
	}
	return nil, a.refused(answer, text)
}
