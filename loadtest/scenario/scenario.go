package scenario

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"math"
	"path"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/flowgate/flowgate/internal/arrivals"
	"github.com/flowgate/flowgate/internal/fragile"
	"github.com/flowgate/flowgate/internal/units"
)

// Scenario is one load test.
type Scenario struct {
	// Name is that of the file without its ending.
	Name string `yaml:"-"`
	// Shows says in a sentence what one sees.
	Shows string `yaml:"shows"`
	// For is how long producers publish.
	For Duration `yaml:"for"`
	// Arrivals are who publishes when.
	Arrivals arrivals.Pattern `yaml:"arrivals"`
	// Producers are how; the first that matches a tenant's name counts, and without any it
	// is an asynchronous client that obeys.
	Producers []Producer `yaml:"producers"`
	// NoIDs has them publish without message ids; a message is known by its payload.
	NoIDs bool `yaml:"no_ids"`
	// Gateway are its FLOWGATE_ variables.
	Gateway map[string]string `yaml:"gateway"`
	// Broker is embedded, in the gateway, or own, a NATS server beside it.
	Broker string `yaml:"broker"`
	// Database is what the gateway delivers to.
	Database fragile.Config `yaml:"database"`
	// Poison is the share of messages that fail each time, 0 to 1.
	Poison float64 `yaml:"poison"`
	// Faults are what breaks.
	Faults []Fault `yaml:"faults"`
	// Promises are those that are checked; none: all.
	Promises []Promise `yaml:"promises"`
	// Expect is what this scenario shows beside the promises.
	Expect Expect `yaml:"expect"`
	// Leaks has memory, goroutines, files and keys checked, and the run is long.
	Leaks bool `yaml:"leaks"`
}

// Producer is how the tenants of a name, or of a glob, publish.
type Producer struct {
	Tenant string `yaml:"tenant"`
	Via    Via    `yaml:"via"`
	// Workers is how many calls are under way at most, where a call blocks; 0: 8.
	Workers int `yaml:"workers"`
	// Refused is what they do then.
	Refused Reaction `yaml:"refused"`
}

// Via is the way in.
type Via string

// The ways.
const (
	Async   Via = "async"    // JetStream, many under way on a connection
	Sync    Via = "sync"     // JetStream, one after the other a worker
	NoReply Via = "no reply" // core NATS, never told anything
	HTTP    Via = "http"
)

// Promise is one of those in the contract.
type Promise string

// The promises.
const (
	NothingLost Promise = "nothing lost" // acknowledged = delivered + dead-lettered + still waiting
	Once        Promise = "once"         // no id twice
	Rate        Promise = "rate"         // no window holds more than the rate allows
	Depth       Promise = "depth"        // never above MAX
	Order       Promise = "order"        // a tenant's messages in stream order
	Answered    Promise = "answered"     // every publish, in time
)

// Promises are all of them.
func Promises() []Promise { return []Promise{NothingLost, Once, Rate, Depth, Order, Answered} }

// Expect is what holds in this scenario with flowgate, beside the promises.
type Expect struct {
	// Crashes is how often the database may go down by itself.
	Crashes int `yaml:"crashes"`
	// Unrefused are tenants, or globs of them, of whom none is refused.
	Unrefused []string `yaml:"unrefused"`
	// Fairness is the least Jain index over tenants, each beside its fair part.
	Fairness float64 `yaml:"fairness"`
	// DeadLetters says that there are some.
	DeadLetters bool `yaml:"dead_letters"`
}

// None expects nothing: any number of crashes, and the rest not looked at.
func (e Expect) None() Expect { return Expect{Crashes: math.MaxInt} }

// Fault breaks something, or mends it.
type Fault struct {
	At   Duration `yaml:"at"`
	What What     `yaml:"what"`
}

// What breaks.
type What string

// What can break, and be mended.
const (
	DatabaseStops   What = "database stops"
	DatabaseReturns What = "database returns"
	GatewayKilled   What = "gateway killed" // SIGKILL
	GatewayStops    What = "gateway stops"  // SIGTERM
	GatewayStarts   What = "gateway starts"
	BrokerStops     What = "broker stops"
	BrokerStarts    What = "broker starts"
)

// Duration is one with its unit.
type Duration time.Duration

// UnmarshalYAML reads 250ms, 10s, 2m.
func (d *Duration) UnmarshalYAML(n *yaml.Node) error {
	v, err := units.ParseDuration(n.Value)
	if err != nil {
		return fmt.Errorf("line %d: %w", n.Line, err)
	}
	*d = Duration(v)
	return nil
}

// Reaction is what a producer does that is refused: it obeys the hint, gives up, or tries
// again after a time of its own.
type Reaction struct {
	Forget bool
	After  time.Duration
}

// UnmarshalYAML reads obey, forget, or a duration.
func (r *Reaction) UnmarshalYAML(n *yaml.Node) error {
	switch n.Value {
	case "obey":
		return nil
	case "forget":
		r.Forget = true
		return nil
	}
	after, err := units.ParseDuration(n.Value)
	if err != nil {
		return fmt.Errorf("line %d: refused: %q: obey, forget, or the time after which it is tried again", n.Line, n.Value)
	}
	r.After = after
	return nil
}

// Parse reads a scenario.
func Parse(name string, text []byte) (*Scenario, error) {
	s := &Scenario{Name: name}
	d := yaml.NewDecoder(bytes.NewReader(text))
	d.KnownFields(true)
	switch err := d.Decode(s); {
	case errors.Is(err, io.EOF):
		return nil, fmt.Errorf("scenario %s: it is empty", name)
	case err != nil:
		return nil, fmt.Errorf("scenario %s: %w", name, err)
	}
	if err := d.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("scenario %s: a second document follows; one is right", name)
	}
	if err := s.validate(); err != nil {
		return nil, fmt.Errorf("scenario %s: %w", name, err)
	}
	return s, nil
}

func (s *Scenario) validate() error {
	var errs []error
	refuse := func(bad bool, format string, args ...any) {
		if bad {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	refuse(s.Shows == "", "shows is empty")
	refuse(s.For <= 0, "for: above 0 is right")
	refuse(s.Broker != "" && s.Broker != "embedded" && s.Broker != "own", "broker %q: embedded or own is right", s.Broker)
	refuse(s.Poison < 0 || s.Poison > 1, "poison %g: 0 to 1 is right", s.Poison)
	refuse(s.NoIDs && s.Poison > 0, "no_ids with poison: whose a dead letter is could not be told")
	errs = append(errs, s.Arrivals.Validate(), s.Database.Validate())
	for _, p := range s.Producers {
		_, err := path.Match(p.Tenant, "")
		refuse(err != nil || p.Tenant == "", "producer %q: a tenant's name or a glob is right", p.Tenant)
		refuse(p.Via != "" && !slices.Contains([]Via{Async, Sync, NoReply, HTTP}, p.Via), "producer %s via %q: %s, %s, %s or %s is right", p.Tenant, p.Via, Async, Sync, NoReply, HTTP)
		refuse(p.Workers < 0, "producer %s: %d workers", p.Tenant, p.Workers)
	}
	for name := range s.Gateway {
		refuse(!strings.HasPrefix(name, "FLOWGATE_"), "gateway: %s is none of its variables", name)
		refuse(slices.Contains(setByTrial, name), "gateway: %s is set by the load test, which stands there itself", name)
	}
	refuse(!slices.IsSortedFunc(s.Faults, func(a, b Fault) int { return cmp.Compare(a.At, b.At) }), "faults: in order of time is right")
	for _, f := range s.Faults {
		known := []What{DatabaseStops, DatabaseReturns, GatewayKilled, GatewayStops, GatewayStarts, BrokerStops, BrokerStarts}
		refuse(!slices.Contains(known, f.What), "fault %q: one of %q is right", f.What, known)
		refuse((f.What == BrokerStops || f.What == BrokerStarts) && s.Broker != "own", "fault %q: needs broker: own", f.What)
	}
	for _, p := range s.Promises {
		refuse(!slices.Contains(Promises(), p), "promise %q: one of %q is right", p, Promises())
	}
	return errors.Join(errs...)
}

// setByTrial are the variables that say where the gateway listens, what it delivers to and
// where its files lie.
var setByTrial = []string{
	"FLOWGATE_CONSUMER_URL", "FLOWGATE_CONSUMER_URL_FILE", "FLOWGATE_DATA_DIR", "FLOWGATE_NATS_URL",
	"FLOWGATE_NATS_LISTEN", "FLOWGATE_INGRESS_HTTP_LISTEN", "FLOWGATE_ADMIN_LISTEN",
}

// Checks reports whether a promise is checked.
func (s *Scenario) Checks(p Promise) bool {
	return len(s.Promises) == 0 || slices.Contains(s.Promises, p)
}

// Producer is how a tenant publishes, and its place among the producers, -1 for none of
// them.
func (s *Scenario) Producer(tenant string) (Producer, int) {
	for i, p := range s.Producers {
		if ok, _ := path.Match(p.Tenant, tenant); ok {
			return p, i
		}
	}
	return Producer{}, -1
}

// Scaled is the scenario in another length: what happens when is moved in proportion,
// rates and the database stay as they are.
func (s *Scenario) Scaled(to time.Duration) *Scenario {
	by := to.Seconds() / time.Duration(s.For).Seconds()
	scale := func(d time.Duration) time.Duration { return max(time.Millisecond, time.Duration(float64(d)*by)) }
	c := *s
	c.For = Duration(to)
	c.Arrivals.Groups = slices.Clone(s.Arrivals.Groups)
	for i, g := range c.Arrivals.Groups {
		g.Phases = slices.Clone(g.Phases)
		for j, f := range g.Phases {
			g.Phases[j].For = scale(f.For)
			g.Phases[j].Burst = int(float64(f.Burst) * by)
		}
		c.Arrivals.Groups[i].Phases = g.Phases
	}
	c.Faults = slices.Clone(s.Faults)
	for i, f := range c.Faults {
		c.Faults[i].At = Duration(scale(time.Duration(f.At)))
	}
	return &c
}
