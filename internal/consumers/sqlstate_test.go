package consumers

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
)

// TestPostgresVerdicts sorts what PostgreSQL may say by who is at fault.
func TestPostgresVerdicts(t *testing.T) {
	for want, codes := range map[VerdictKind]map[string]string{
		Overload: {
			"08000": "connection", "08006": "connection failure", "08P01": "protocol violation",
			"25006": "read-only", "25P02": "failed transaction", "25P03": "idle too long in a transaction",
			"26000": "no such prepared statement, behind a pooler", "28000": "no entry in pg_hba", "28P01": "wrong password", "3D000": "no such database",
			"40001": "serialization", "40003": "completion unknown", "40P01": "deadlock",
			"42501": "no right", "42703": "no such column", "42P01": "no such table", "42P05": "prepared statement exists, behind a pooler", "42P10": "no key for ON CONFLICT",
			"53000": "resources", "53100": "disk full", "53200": "out of memory", "53300": "too many connections",
			"55006": "in use", "55P03": "lock not available", "57P01": "admin shutdown", "57P02": "crash shutdown", "57P03": "cannot connect now", "57P05": "idle session",
			"58000": "system", "58030": "I/O", "XX000": "internal", "XX001": "data corrupted",
		},
		Reject: {
			"22001": "too long", "22003": "out of range", "22008": "time out of range", "22021": "bytes that are not UTF-8", "22P02": "text form", "22P05": "character without counterpart",
			"23000": "integrity", "23502": "not null", "23503": "foreign key", "23505": "unique", "23514": "check", "54000": "program limit",
		},
		Retry: {
			"57014": "cancelled, or statement timeout", "P0001": "raised by a trigger", "0A000": "cached plan", "21000": "cardinality", "40002": "integrity at the end", "99999": "unheard of",
		},
	} {
		for code, name := range codes {
			err := postgresVerdict(fmt.Errorf("wrapped: %w", &pgconn.PgError{Code: code, Message: name}))
			if got := Judge(err).Kind; got != want {
				t.Errorf("%s (%s): %s, want %s", code, name, got, want)
			}
			if state(err) != code {
				t.Errorf("%s: the verdict hides the code: %v", code, err)
			}
		}
	}
	for name, test := range map[string]struct {
		err  error
		want VerdictKind
	}{
		"broken connection": {io.ErrUnexpectedEOF, Overload},
		"anything else":     {errors.New("conn closed"), Overload},
		"deadline":          {fmt.Errorf("timeout: %w", context.DeadlineExceeded), Retry},
		"cancelled":         {fmt.Errorf("stop: %w", context.Canceled), Retry},
	} {
		if got := Judge(postgresVerdict(test.err)).Kind; got != test.want {
			t.Errorf("%s: %s, want %s", name, got, test.want)
		}
	}
}
