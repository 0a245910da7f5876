package simulation

import (
	"cmp"
	"fmt"
	"regexp"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/flowgate/flowgate/internal/consumers"
	"github.com/flowgate/flowgate/internal/fragile"
)

// database is a fragile one behind a connection: while it is down the connection is
// refused, and when it goes down it is lost, which costs no message an attempt.
type database struct {
	*fragile.Database
	cfg fragile.Config
}

// scalar is a value that YAML takes for nothing else than one.
var scalar = regexp.MustCompile(`^[0-9a-z.µ]+$`)

// parseFragile reads the parts of a database.
func parseFragile(values [][2]string, seed uint64) (func() Consumer, error) {
	var text strings.Builder
	for _, v := range values {
		if !scalar.MatchString(v[1]) {
			return nil, fmt.Errorf("%s: %q is not understood", v[0], v[1])
		}
		fmt.Fprintf(&text, "%q: %s\n", v[0], v[1])
	}
	var cfg fragile.Config
	if err := yaml.Unmarshal([]byte(text.String()), &cfg); err != nil {
		return nil, fmt.Errorf("%s", strings.TrimPrefix(lineNumber.ReplaceAllString(err.Error(), ""), "yaml: "))
	}
	cfg.Seed = cmp.Or(cfg.Seed, seed)
	return Database(cfg), nil
}

// Database makes fragile ones of a configuration, which must be valid.
func Database(cfg fragile.Config) func() Consumer {
	return func() Consumer {
		d, err := fragile.New(cfg)
		if err != nil {
			panic("simulation: " + err.Error())
		}
		return &database{d, cfg}
	}
}

// lineNumber means nothing where all stands on one line.
var lineNumber = regexp.MustCompile(`line [0-9]+: `)

func (d *database) Start(now time.Duration, _ int) (uint64, error) {
	id, err := d.Database.Start(int64(now))
	return id, verdict(err)
}

func (d *database) Next() (time.Duration, bool) {
	at, ok := d.Database.Next()
	return time.Duration(at), ok
}

func (d *database) Advance(now time.Duration) (answers []Answer) {
	for _, o := range d.Database.Advance(int64(now)) {
		answers = append(answers, Answer{o.ID, verdict(o.Err)})
	}
	return answers
}

func (d *database) Cancel(now time.Duration, id uint64) { d.Database.Cancel(int64(now), id) }

func (d *database) Capacity(inFlight int) float64 {
	return float64(min(inFlight, d.cfg.Knee)) / d.cfg.Latency.Seconds()
}

func verdict(err error) error {
	if err == nil {
		return nil
	}
	return consumers.Overloaded(0, err)
}
