// Package limits is admission over scopes: the whole gateway, a service, a tenant, a
// user, an IP address, an API key. Each scope has its rules, with overrides for
// single keys and globs, from the environment and live. All rules of all scopes must
// admit a message, or nothing is taken from any.
//
// The arithmetic and the store of keys are algorithms'; this package says which rule
// a key is under.
package limits
