package broker

import (
	"errors"
	"strings"
	"testing"

	"github.com/nats-io/nats.go/jetstream"
)

// What an account does not give stops the start with what is needed and what to do,
// and the check finds the same before.
func TestAccountLimits(t *testing.T) {
	const store = "max_store: 2GB, max_mem: 1MB, max_streams: 10, max_consumers: 10"
	for _, tc := range []struct {
		name, limits string
		change       func(*Topology)
		finding      string   // empty: there is enough
		check, start []string // what each says
	}{
		{name: "unlimited", limits: "enabled"},
		{name: "as much as is needed", limits: "{ max_store: 1342177282, max_mem: 1MB, max_streams: 4, max_consumers: 1 }"},
		{
			name: "the bounds and nothing for the buckets", limits: "{ max_store: 1342177280, max_mem: 1MB, max_streams: 4, max_consumers: 1 }",
			finding: "account storage", check: []string{"1342177282 more are needed", "1342177280 of 1342177280 are left"},
			start: []string{"FLOWGATE_BACKPRESSURE_MAX_BYTES 1073741824", "FLOWGATE_DLQ_MAX_BYTES 268435456", "of 1342177280"},
		},
		{
			name: "too few streams", limits: "{ max_store: 2GB, max_mem: 1MB, max_streams: 3, max_consumers: 1 }",
			finding: "account streams", check: []string{"4 more are needed", "3 of 3 are left"}, start: []string{"4 streams"},
		},
		{
			name: "without live limits these are enough", limits: "{ max_store: 2GB, max_mem: 1MB, max_streams: 3, max_consumers: 1 }",
			change: func(top *Topology) { top.LimitsBucket = "" },
		},
		{
			name: "streams too small", limits: "{ " + store + ", store_max_stream_bytes: 512MB }",
			finding: "account stream size", check: []string{"1073741824", "536870912"}, start: []string{"FLOWGATE_BACKPRESSURE_MAX_BYTES 1073741824"},
		},
		{
			name: "streams must have a bound", limits: "{ " + store + ", max_bytes_required: true }",
			change: func(top *Topology) { top.MaxBytes = 0 }, finding: "account stream bounds", check: []string{"bounded in bytes"},
			start: []string{"FLOWGATE_BACKPRESSURE_MAX_BYTES 0"},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := external(t, "accounts { APP { jetstream: "+tc.limits+", users: [ { user: gate, password: gate } ] } }")
			b := toExternal(t, s, as("gate"))
			_, js := gateway(t, b)
			top := limitsToo()
			if tc.change != nil {
				tc.change(&top)
			}
			all := checked(t, b, top)
			_, err := Ensure(t.Context(), js, top)
			if tc.finding == "" {
				// The trial's stream and bucket need room of their own.
				delete(all, "trial")
				if failed := all.failed(); failed != "" || err != nil {
					t.Errorf("there is enough, but: %v\n%s", err, failed)
				}
				// Nothing more is needed by a gateway that is there.
				all = checked(t, b, top)
				delete(all, "trial")
				if failed := all.failed(); failed != "" {
					t.Errorf("beside what is there: %s", failed)
				}
				return
			}
			all.wantFinding(t, tc.finding, tc.check...)
			wantError(t, err, tc.start...)
			delete(all, tc.finding)
			delete(all, "trial") // it meets the same limit
			if failed := all.failed(); failed != "" {
				t.Errorf("also wrong: %s", failed)
			}
		})
	}
}

func TestAccountWithoutJetStream(t *testing.T) {
	s := external(t, "accounts { APP { users: [ { user: gate, password: gate } ] }, OTHER { jetstream: enabled } }")
	b := toExternal(t, s, as("gate"))
	_, js := gateway(t, b)
	_, err := Ensure(t.Context(), js, testTopology())
	wantError(t, err, "enable JetStream for the account")
	if !errors.Is(err, jetstream.ErrJetStreamNotEnabledForAccount) {
		t.Errorf("it is not the server's error: %v", err)
	}
	wantError(t, checked(t, b, testTopology())["JetStream"].Err, "enable JetStream for the account")
}

func TestMoreReplicasThanServers(t *testing.T) {
	b := toExternal(t, external(t, ""), nil)
	_, js := gateway(t, b)
	top := testTopology()
	top.Replicas = 3
	_, err := Ensure(t.Context(), js, top)
	wantError(t, err, "FLOWGATE_NATS_REPLICAS is 3")
	wantError(t, checked(t, b, top)["trial"].Err, "FLOWGATE_NATS_REPLICAS is 3")
	if left := configs(t, js); len(left) != 0 {
		t.Errorf("it left %v", left)
	}
}

// The server's own limit is none of the account's: the account is told it has no
// limit, and the stream is refused all the same.
func TestAServerWithASmallStore(t *testing.T) {
	cfg := testConfig(t.TempDir())
	cfg.ConfigFile = written(t, "jetstream { max_file_store: 1MB }")
	b := start(t, cfg)
	_, js := gateway(t, b)
	_, err := Ensure(t.Context(), js, testTopology())
	wantError(t, err, "max_file_store", "FLOWGATE_BACKPRESSURE_MAX_BYTES 1073741824")
	all := checked(t, b, testTopology())
	wantError(t, all["trial"].Err, "max_file_store")
	if detail := all["account storage"].Detail; !strings.Contains(detail, "unlimited") {
		t.Errorf("account storage: %s", detail)
	}
	if left := configs(t, js); len(left) != 0 {
		t.Errorf("it left %v", left)
	}
}
