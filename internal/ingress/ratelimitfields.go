package ingress

import (
	"math"
	"net/http"
	"strconv"
	"time"
)

// The fields of draft-ietf-httpapi-ratelimit-headers-10: lists of structured-field
// strings with parameters, one item a limit.
const (
	policyField = "RateLimit-Policy"
	limitField  = "RateLimit"
)

// mostInteger is the largest integer a structured field can hold.
const mostInteger = 999_999_999_999_999

// quotaFields sets both fields; none without quotas, since an empty list may not be
// sent. A second rule of a scope is called "tenant-2": names stand for one policy.
func quotaFields(h http.Header, quotas []Quota) {
	if len(quotas) == 0 {
		return
	}
	var roomPolicy, roomLimit [128]byte
	policy, limit := roomPolicy[:0], roomLimit[:0]
	for i, q := range quotas {
		nth := 1
		for _, before := range quotas[:i] {
			if before.Scope == q.Scope {
				nth++
			}
		}
		if i > 0 {
			policy, limit = append(policy, ", "...), append(limit, ", "...)
		}
		policy, limit = appendPolicyName(policy, q.Scope, nth), appendPolicyName(limit, q.Scope, nth)
		policy = appendParameter(policy, ";q=", q.Capacity)
		// Both times are optional, and a limit of which nothing comes back has none: t=0
		// would call its client back at once.
		if q.Window < math.MaxInt64 {
			policy = appendParameter(policy, ";w=", max(1, wholeSeconds(q.Window)))
		}
		limit = appendParameter(limit, ";r=", q.Remaining)
		if q.Reset >= 0 && q.Capacity > 0 {
			limit = appendParameter(limit, ";t=", wholeSeconds(q.Reset))
		}
	}
	h[policyField] = []string{string(policy)}
	h[limitField] = []string{string(limit)}
}

func appendPolicyName(b []byte, scope string, nth int) []byte {
	b = append(append(b, '"'), scope...)
	if nth > 1 {
		b = strconv.AppendInt(append(b, '-'), int64(nth), 10)
	}
	return append(b, '"')
}

func appendParameter(b []byte, name string, v uint64) []byte {
	return strconv.AppendUint(append(b, name...), min(v, mostInteger), 10)
}

// wholeSeconds rounds up: told too early, a client would come back for nothing.
func wholeSeconds(d time.Duration) uint64 {
	if d <= 0 {
		return 0
	}
	return uint64((d-1)/time.Second) + 1
}
