package limits

import (
	"time"

	"github.com/flowgate/flowgate/internal/algorithms"
)

// Scope is what a limit counts for.
type Scope string

// The scopes.
const (
	Gateway Scope = "gateway"
	Service Scope = "service"
	Tenant  Scope = "tenant"
	User    Scope = "user"
	IP      Scope = "ip"
	APIKey  Scope = "api_key"
)

// Scopes lists the scopes, the widest first.
func Scopes() []Scope { return []Scope{Gateway, Service, Tenant, User, IP, APIKey} }

// Entry is a live limit.
type Entry struct {
	Scope          Scope
	Key            string
	Rules          algorithms.Rules
	Author, Reason string
	At             time.Time
	Revision       uint64
}
