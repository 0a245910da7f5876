package consumers

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
)

// overloadStates are the SQLSTATE classes and codes that say that the server, not
// the row, is at fault: connection, resources, shutdown, rollback by concurrency,
// lock not available, read-only, no such database, and what is wrong with our
// statement itself, which every row would meet: no such table, column, right or
// prepared statement.
var overloadStates = []string{
	"08", "25", "26", "28", "3D", "40001", "40003", "40P01", "42", "53", "55", "57P", "58", "XX",
}

// statementStates are those of a statement that no row can pass: no such table, column
// or function, wrong types, no right.
var statementStates = []string{"26", "42"}

// staleStates may come of what a connection remembers: prepared statements, and a
// server that was made a standby.
var staleStates = []string{"0A", "25006", "26", "42"}

// rowStates are those that the same row will meet again: bad data, a broken
// constraint, something too large.
var rowStates = []string{"22", "23", "54"}

// postgresVerdict sorts an error of a statement that was sent.
func postgresVerdict(err error) error {
	var e *pgconn.PgError
	switch {
	case errors.As(err, &e):
		if hasPrefix(e.Code, overloadStates) {
			return Overloaded(0, fmt.Errorf("postgres: %w", err))
		}
		if hasPrefix(e.Code, rowStates) {
			return Permanent(fmt.Errorf("postgres: %w", err))
		}
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		// The server took it and did not finish: the message's own attempt.
	default:
		// No answer of the server's: the connection broke.
		return Overloaded(0, fmt.Errorf("postgres: %w", err))
	}
	return fmt.Errorf("postgres: %w", err)
}

func hasPrefix(code string, list []string) bool {
	for _, p := range list {
		if strings.HasPrefix(code, p) {
			return true
		}
	}
	return false
}
