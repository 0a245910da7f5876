package consumers

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
)

const schemes = "sqlite:<path>, postgres://…"

// schemeForm is what may be shown: "password=hunter2 host=[::1]" has a colon too.
var schemeForm = regexp.MustCompile(`^[a-z]{1,16}$`)

// ValidateURL checks the form of a destination's URL without connecting; its
// errors never show the URL, which may hold a password.
func ValidateURL(url string) error {
	scheme, _, ok := strings.Cut(url, ":")
	if !ok {
		return errors.New("has no scheme; it accepts " + schemes)
	}
	switch scheme {
	case "sqlite":
		return nil
	case "postgres", "postgresql":
		// Without the slashes it would be read as "key=value key=value".
		if _, err := pgxpool.ParseConfig(url); err != nil || !strings.HasPrefix(url, scheme+"://") {
			return errors.New("is not a PostgreSQL URL like postgres://user:password@host:5432/database")
		}
		return nil
	}
	if !schemeForm.MatchString(scheme) {
		return errors.New("begins with no scheme; it accepts " + schemes)
	}
	return fmt.Errorf("has the scheme %q; it accepts %s", scheme, schemes)
}

// Open makes the destination that cfg.URL names. dataDir is where a SQLite
// database without a path lies.
func Open(ctx context.Context, cfg Config, dataDir string, reg prometheus.Registerer, log *slog.Logger) (Destination, error) {
	if err := ValidateURL(cfg.URL); err != nil {
		return nil, fmt.Errorf("FLOWGATE_CONSUMER_URL: %w", err)
	}
	log = log.With("component", "consumers")
	if path, ok := strings.CutPrefix(cfg.URL, "sqlite:"); ok {
		if path == "" {
			path = filepath.Join(dataDir, "messages.db")
		}
		return OpenSQLite(ctx, path, reg, log)
	}
	return OpenPostgres(cfg.URL, cfg.Concurrency, cfg.Timeout, reg, log)
}
