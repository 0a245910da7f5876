package ingress

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// APIKeys says which key belongs to which tenant, out of a file of "<key> <tenant>"
// lines.
//
// Keys are held and looked up by their SHA-256 with a secret of this process before
// them. So the time that a look-up takes tells nothing of the keys: whoever guesses
// does not know what he guesses at, and cannot come nearer step by step. Comparing
// with every key in constant time would give no more and cost more with each key.
type APIKeys struct {
	path   string
	secret [32]byte
	tenant atomic.Pointer[map[[sha256.Size]byte]string]
	files  watchedFiles
}

// keyVerdict is what a key is to a tenant.
type keyVerdict uint8

const (
	keyGood keyVerdict = iota
	keyUnknown
	keyOfAnother
)

// openAPIKeys reads the file; nil without a path.
func openAPIKeys(path string, log *slog.Logger) (*APIKeys, error) {
	if path == "" {
		return nil, nil
	}
	k := &APIKeys{path: path}
	_, _ = rand.Read(k.secret[:]) // never fails
	k.files = watchedFiles{paths: []string{path}, what: "API keys", load: k.load, log: log}
	if err := k.files.open(); err != nil {
		return nil, err
	}
	return k, nil
}

func (k *APIKeys) load() error {
	text, err := os.ReadFile(k.path)
	if err != nil {
		return fmt.Errorf("FLOWGATE_INGRESS_API_KEYS_FILE: %w", err)
	}
	tenants, err := k.parse(text)
	if err != nil {
		return fmt.Errorf("FLOWGATE_INGRESS_API_KEYS_FILE: %s%w", k.path, err)
	}
	k.tenant.Store(&tenants)
	return nil
}

// parse reads the lines of a file. Its errors begin with the line's number and never
// show a key.
func (k *APIKeys) parse(text []byte) (map[[sha256.Size]byte]string, error) {
	tenants := map[[sha256.Size]byte]string{}
	number := 0
	for line := range bytes.Lines(text) {
		number++
		fields := strings.Fields(string(line))
		for i, f := range fields {
			if strings.HasPrefix(f, "#") && i != 1 {
				fields = fields[:i]
				break
			}
		}
		if len(fields) == 0 {
			continue
		}
		if len(fields) != 2 {
			return nil, fmt.Errorf(":%d: %d words; a line is <key> <tenant>, or a comment after #", number, len(fields))
		}
		key, tenant := fields[0], fields[1]
		if strings.ContainsFunc(key, func(r rune) bool { return r <= ' ' || r > '~' }) {
			return nil, fmt.Errorf(":%d: the key has a byte that is not printable ASCII, which no client could send", number)
		}
		if !ValidTenant(tenant) {
			return nil, fmt.Errorf(":%d: tenant %q must be 1 to %d of A-Z a-z 0-9 _ -", number, clip(tenant), MaxTenant)
		}
		sum := k.sum(key)
		if other, known := tenants[sum]; known && other != tenant {
			return nil, fmt.Errorf(":%d: this key is %s's already; a key belongs to one tenant", number, other)
		}
		tenants[sum] = tenant
	}
	if len(tenants) == 0 {
		return nil, fmt.Errorf(": no keys in it, so nobody could publish over HTTP")
	}
	return tenants, nil
}

func (k *APIKeys) sum(key string) [sha256.Size]byte {
	var room [128]byte
	return sha256.Sum256(append(append(room[:0], k.secret[:]...), key...))
}

func (k *APIKeys) check(key, tenant string) keyVerdict {
	owner, known := (*k.tenant.Load())[k.sum(key)]
	switch {
	case !known:
		return keyUnknown
	case owner != tenant:
		return keyOfAnother
	}
	return keyGood
}

// watch reads the file again when it changes, until ctx ends.
func (k *APIKeys) watch(ctx context.Context) { k.files.watch(ctx) }

func (k *APIKeys) register(reg prometheus.Registerer) {
	f := promauto.With(reg)
	f.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "flowgate_ingress_api_keys",
		Help: "API keys in force.",
	}, func() float64 { return float64(len(*k.tenant.Load())) })
	f.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "flowgate_ingress_api_keys_stale",
		Help: "1 while the file of API keys cannot be used as it is now, and the keys read before are in force.",
	}, func() float64 {
		if k.files.stale.Load() {
			return 1
		}
		return 0
	})
}

// wrongKey says the same of a key that nobody has and of one that is another's.
func wrongKey() *Refusal {
	return &Refusal{Reason: Forbidden, Text: "the API key is not this tenant's", Wait: NoRetry}
}
