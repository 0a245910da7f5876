package main

import (
	"errors"
	"flag"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/flowgate/flowgate/cmd/flowgate/app"
)

const selectHelp = `  --tenant=<name>      of this tenant
  --class=<class>      permanent: the destination will never take it; attempts: all were used up; expired: its
                       deadline passed; crashed: the process ended at each; unknown
  --older-than=<age>   died longer ago than 90s, 24h …, or before a time as in RFC 3339
  --newer-than=<age>   died since
  --seq=<range>        a sequence, or a range of them: 7, 7-90, 7-
`

const whyHelp = `  --reason=<text>      why, for the log
  --author=<name>      who; $USER otherwise
`

func dlqCommands() []command {
	return []command{
		{
			name: "dlq list", args: "[options]", run: cli.dlqList,
			meaning: "show dead letters, the newest first; not what they hold",
			more: selectHelp + `  --limit=<n>          so many at most, 100 otherwise; 0: all
  --oldest             the oldest first
  --json               a line of JSON each
` + addrHelp,
		},
		{
			name: "dlq show", args: "<seq> [options]", run: cli.dlqShow,
			meaning: "show a dead letter with its headers and payload",
			more: `  --raw                the payload alone, as it is
  --json               as JSON
` + addrHelp,
		},
		{
			name: "dlq replay", args: "<seq>… | <selection> [options]", run: cli.dlqReplay,
			meaning: "put dead letters back into the backlog; each is delivered under the id it had",
			more: `  flowgate dlq replay 7 8 9
  flowgate dlq replay --tenant acme --class permanent --reason='column widened'

` + selectHelp + `  --all                every one
` + whyHelp + `  --json               as JSON
` + addrHelp + `
A replayed message has all its attempts before it, no deadline any more, and waits its turn like any other. Many
are put back while the backlog is below its low watermark, so that producers are not refused on their account; the
command waits meanwhile, and what is left when it is stopped stays. Those that die while it runs are not replayed.
`,
		},
		{
			name: "dlq purge", args: "<seq>… | <selection> [options]", run: cli.dlqPurge,
			meaning: "delete dead letters for good",
			more: selectHelp + `  --all                every one
  --yes                without asking
` + whyHelp + `  --json               as JSON
` + addrHelp,
		},
	}
}

// selection are the flags that select dead letters.
type selection struct {
	query app.DeadLetterQuery
	seq   string
}

func selectFlags(f *flag.FlagSet) *selection {
	s := &selection{}
	f.StringVar(&s.query.Tenant, "tenant", "", "of this tenant")
	f.StringVar(&s.query.Class, "class", "", "of this error class")
	f.StringVar(&s.query.OlderThan, "older-than", "", "died longer ago")
	f.StringVar(&s.query.NewerThan, "newer-than", "", "died since")
	f.StringVar(&s.seq, "seq", "", "a sequence or a range of them")
	return s
}

// read checks the flags. Ages become instants here, so that all requests of a command
// mean the same.
func (s *selection) read() (app.DeadLetterQuery, error) {
	q := s.query
	if s.seq != "" {
		var err error
		if q.From, q.To, err = app.ParseRange(s.seq); err != nil {
			return q, usageError{fmt.Errorf("--seq: %w", err)}
		}
	}
	f, err := q.Filter(time.Now())
	if err != nil {
		return q, usageError{errors.New(strings.ReplaceAll(err.Error(), "\n", "; "))}
	}
	if q.OlderThan != "" {
		q.OlderThan = f.Before.Format(time.RFC3339Nano)
	}
	if q.NewerThan != "" {
		q.NewerThan = f.After.Format(time.RFC3339Nano)
	}
	return q, nil
}

// sequences reads the words of a command.
func sequences(words []string) ([]uint64, error) {
	seqs := make([]uint64, len(words))
	for i, w := range words {
		var err error
		if seqs[i], err = strconv.ParseUint(w, 10, 64); err != nil || seqs[i] == 0 {
			return nil, usageError{fmt.Errorf("%q is not the sequence of a dead letter", w)}
		}
	}
	return seqs, nil
}
