package history

import (
	"iter"
	"strings"
)

// recent keeps something by tenant: of at least the most tenants that were touched last,
// and of twice as many at most. When the young are that many, they are the old ones from
// then on, and those before are forgotten; who is touched is young again. So no list of
// uses has to be kept in order.
type recent[T any] struct {
	most       int
	young, old map[string]*T
}

func newRecent[T any](most int) recent[T] { return recent[T]{most: most, young: map[string]*T{}} }

// touch is the tenant's, made if it is not there. The name is copied if it is kept.
func (r *recent[T]) touch(tenant string) *T {
	if v := r.young[tenant]; v != nil {
		return v
	}
	v := r.old[tenant]
	if v == nil {
		v = new(T)
	} else {
		delete(r.old, tenant)
	}
	if len(r.young) >= r.most {
		r.young, r.old = map[string]*T{}, r.young
	}
	r.young[strings.Clone(tenant)] = v
	return v
}

// find is nil for a tenant that is not there.
func (r *recent[T]) find(tenant string) *T {
	if v := r.young[tenant]; v != nil {
		return v
	}
	return r.old[tenant]
}

// all are in no order.
func (r *recent[T]) all() iter.Seq2[string, *T] {
	return func(yield func(string, *T) bool) {
		for _, m := range []map[string]*T{r.young, r.old} {
			for tenant, v := range m {
				if !yield(tenant, v) {
					return
				}
			}
		}
	}
}
