package arrivals

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Try is a message as it came to a gateway, admitted or not.
type Try struct {
	Arrival
	// Again marks one that repeats a message refused before.
	Again bool
	// ID says that the message has an id, by which it is known again.
	ID bool
}

// Recording is what came to a gateway, in order of time.
type Recording struct {
	Tries []Try
	// Until is when it ended, or of what its last line tells.
	Until time.Duration
	// NoIDs says that it tells of ids, and that no message had one.
	NoIDs bool
	// Missing is how many tries came and were not written.
	Missing uint64
	// Cut says what is wrong with the end, which was left out; empty if nothing is.
	Cut string
}

// The columns of a recording. The first two are needed.
//
//	at_us,tenant,topic,bytes,again
//	0,acme,orders,256,
//	1250,globex,bills.paid,1024,0
//	9800,globex,bills.paid,1024,1
//
// at_us are microseconds since the start. again is empty for a message without an id, and
// 1 for one that came before. Lines that begin with # are remarks; two of them have a
// meaning:
//
//	# 12 tries are missing
//	# until 60000000
var columns = []string{"at_us", "tenant", "topic", "bytes", "again"}

const (
	missingSays = " tries are missing"
	untilSays   = "until "
	// longestLine is far beyond a tenant, a topic and numbers.
	longestLine = 64 << 10
	// farthest is the longest recording: ten years, which is less than since 1970.
	farthest = forever
)

// IsRecording reports whether a file that begins so is one, or is packed.
func IsRecording(head []byte) bool {
	head = bytes.TrimPrefix(head, []byte("\ufeff"))
	return packed(head) || bytes.HasPrefix(head, []byte("#")) && bytes.Contains(head, []byte("at_us")) ||
		slices.ContainsFunc(columns, func(name string) bool { return bytes.HasPrefix(head, []byte(name+",")) })
}

func packed(head []byte) bool { return len(head) >= 2 && head[0] == 0x1f && head[1] == 0x8b }

// ReadRecording reads a recording, packed with gzip or not. An end that is cut off, as by a full
// disk, is left out and said; anything else that is wrong is an error with its line.
func ReadRecording(r io.Reader) (*Recording, error) {
	in := bufio.NewReaderSize(r, longestLine)
	if head, _ := in.Peek(2); packed(head) {
		z, err := gzip.NewReader(in)
		if err != nil {
			return nil, fmt.Errorf("it begins as gzip does and is none: %w", err)
		}
		defer func() { _ = z.Close() }()
		in = bufio.NewReaderSize(z, longestLine)
	}
	rec := &recordingReader{tenants: map[string]string{}, topics: map[string]string{}}
	for rec.line = 1; ; rec.line++ {
		text, err := in.ReadSlice('\n')
		cut := errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			return nil, fmt.Errorf("line %d is over %d bytes; is it a recording?", rec.line, longestLine)
		case err != nil && !cut:
			return nil, fmt.Errorf("line %d: %w", rec.line, err)
		}
		wrong := rec.take(strings.TrimRight(string(text), "\r\n"))
		switch {
		case wrong != nil && cut && rec.at != nil:
			rec.Cut = fmt.Sprintf("line %d is cut off", rec.line)
		case wrong != nil:
			return nil, fmt.Errorf("line %d: %w", rec.line, wrong)
		}
		if cut {
			if rec.at == nil {
				return nil, fmt.Errorf("it is empty; the first line names the columns: %s", strings.Join(columns, ","))
			}
			if errors.Is(err, io.ErrUnexpectedEOF) && rec.Cut == "" {
				rec.Cut = fmt.Sprintf("it ends after line %d, before gzip's own end", rec.line)
			}
			break
		}
	}
	_, tells := rec.at["again"]
	rec.NoIDs = tells && len(rec.Tries) > 0 && !slices.ContainsFunc(rec.Tries, func(t Try) bool { return t.ID })
	slices.SortStableFunc(rec.Tries, func(a, b Try) int { return int(min(max(a.At-b.At, -1), 1)) })
	return &rec.Recording, nil
}

type recordingReader struct {
	Recording
	line  int
	at    map[string]int // of each column; nil before the head
	width int
	// each tenant and topic once
	tenants, topics map[string]string
}

// take reads a line.
func (r *recordingReader) take(line string) error {
	line = strings.TrimPrefix(line, "\ufeff")
	if line == "" {
		return nil
	}
	if remark, ok := strings.CutPrefix(line, "#"); ok {
		if until, ok, err := Until(line); ok {
			r.Until = max(r.Until, until)
			return err
		}
		if n, ok := strings.CutSuffix(strings.TrimSpace(remark), missingSays); ok {
			missing, err := strconv.ParseUint(n, 10, 64)
			if err != nil {
				return fmt.Errorf("%q is no number of tries", n)
			}
			r.Missing += missing
		}
		return nil
	}
	fields := strings.Split(line, ",")
	if strings.Contains(line, `"`) {
		var err error
		if fields, err = csv.NewReader(strings.NewReader(line)).Read(); err != nil {
			return errors.New("a quoted field is not understood")
		}
	}
	if r.at == nil {
		return r.head(fields)
	}
	if len(fields) != r.width {
		return fmt.Errorf("%d fields in place of %d", len(fields), r.width)
	}
	return r.try(fields)
}

func (r *recordingReader) head(fields []string) error {
	at := map[string]int{}
	for i, name := range fields {
		name = strings.TrimSpace(name)
		if !slices.Contains(columns, name) {
			return fmt.Errorf("%q is no column; the columns are %s", name, strings.Join(columns, ","))
		}
		if _, twice := at[name]; twice {
			return fmt.Errorf("the column %s is there twice", name)
		}
		at[name] = i
	}
	for _, name := range columns[:2] {
		if _, ok := at[name]; !ok {
			return fmt.Errorf("the column %s is missing", name)
		}
	}
	r.at, r.width = at, len(fields)
	return nil
}

func (r *recordingReader) try(fields []string) error {
	field := func(name string) string {
		if i, ok := r.at[name]; ok {
			return fields[i]
		}
		return ""
	}
	at, err := parseMicroseconds(field("at_us"))
	if err != nil {
		return fmt.Errorf("at_us: %w", err)
	}
	t := Try{Arrival: Arrival{At: at, Topic: "orders", Bytes: 256}}
	r.Until = max(r.Until, at+time.Microsecond)
	if t.Tenant, err = once(r.tenants, "tenant", field("tenant"), validTenant); err != nil {
		return err
	}
	if topic := field("topic"); topic != "" {
		if t.Topic, err = once(r.topics, "topic", topic, validTopic); err != nil {
			return err
		}
	}
	if text := field("bytes"); text != "" {
		n, err := strconv.ParseUint(text, 10, 31)
		if err != nil || n > mostBytes {
			return fmt.Errorf("bytes: %q is not a whole number up to %d", text, mostBytes)
		}
		t.Bytes = int(n)
	}
	switch again := field("again"); again {
	case "":
	case "0", "1":
		t.ID, t.Again = true, again == "1"
	default:
		return fmt.Errorf("again: %q is neither 0, 1 nor empty", again)
	}
	r.Tries = append(r.Tries, t)
	return nil
}

// Until is what a line says of how far a recording goes; ok is false if it is not about that.
func Until(line string) (until time.Duration, ok bool, err error) {
	remark, _ := strings.CutPrefix(line, "#")
	us, ok := strings.CutPrefix(strings.TrimSpace(remark), untilSays)
	if !ok || remark == line {
		return 0, false, nil
	}
	until, err = parseMicroseconds(us)
	return until, true, err
}

func parseMicroseconds(s string) (time.Duration, error) {
	us, err := strconv.ParseInt(s, 10, 64)
	switch {
	case err != nil || us < 0:
		return 0, fmt.Errorf("%q is not a whole number of microseconds", s)
	case us > farthest.Microseconds():
		return 0, fmt.Errorf("%s microseconds are over ten years; they count from the recording's beginning, not from 1970", s)
	}
	return time.Duration(us) * time.Microsecond, nil
}

// once gives the one string there is of a tenant or topic.
func once(names map[string]string, what, s string, valid func(string) bool) (string, error) {
	if have, ok := names[s]; ok {
		return have, nil
	}
	if !valid(s) {
		return "", fmt.Errorf("%s: %q is none", what, s)
	}
	s = strings.Clone(s)
	names[s] = s
	return s, nil
}

// AppendHead adds the line that names the columns.
func AppendHead(b []byte) []byte { return append(append(b, strings.Join(columns, ",")...), '\n') }

// AppendMissing adds the remark that so many tries came and are not written.
func AppendMissing(b []byte, n uint64) []byte { return fmt.Appendf(b, "# %d%s\n", n, missingSays) }

// AppendUntil adds the remark that nothing else came up to an instant.
func AppendUntil(b []byte, at time.Duration) []byte {
	return fmt.Appendf(b, "# %s%d\n", untilSays, at.Microseconds())
}

// AppendTry adds the line of a try.
func AppendTry(b []byte, t Try) []byte {
	b = strconv.AppendInt(b, t.At.Microseconds(), 10)
	b = append(b, ',')
	b = append(b, t.Tenant...)
	b = append(b, ',')
	if strings.ContainsAny(t.Topic, "\",#") {
		b = append(b, '"')
		b = append(b, strings.ReplaceAll(t.Topic, `"`, `""`)...)
		b = append(b, '"')
	} else {
		b = append(b, t.Topic...)
	}
	b = append(b, ',')
	b = strconv.AppendInt(b, int64(t.Bytes), 10)
	b = append(b, ',')
	switch {
	case t.Again:
		b = append(b, '1')
	case t.ID:
		b = append(b, '0')
	}
	return append(b, '\n')
}
