// Package report shows trials: one HTML file that asks for nothing else, and the same
// figures as JSON. What a person should see first is the database, without flowgate and with
// it, side by side.
package report
