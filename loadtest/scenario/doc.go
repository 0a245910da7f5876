// Package scenario is what a load test does, as a small YAML file says it: who publishes
// when and how, the gateway's variables, the database behind it, what breaks when, and
// what has to hold all the same.
package scenario
