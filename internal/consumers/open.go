package consumers

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"
	"github.com/prometheus/client_golang/prometheus"
)

// Deps are what a destination works with beside its configuration.
type Deps struct {
	// DataDir is where a SQLite database without a path lies.
	DataDir string
	// NATS is the gateway's connection to its broker.
	NATS *nats.Conn
	// Stdout is where stdout: writes.
	Stdout io.Writer
	// Version is the gateway's, as it names itself over HTTP.
	Version    string
	Registerer prometheus.Registerer
	Logger     *slog.Logger
}

// scheme is one kind of destination.
type scheme struct {
	// names are how its URLs begin, without the colon; form is how an error shows it.
	names []string
	form  string
	// check checks a URL's form without connecting. Its errors never show the URL,
	// which may hold a password, and read on from "FLOWGATE_CONSUMER_URL: ".
	check func(url string) error
	open  func(ctx context.Context, cfg Config, deps Deps) (Destination, error)
}

// schemes are all there are.
func schemes() []scheme {
	return []scheme{
		{[]string{"sqlite"}, "sqlite:<path>", func(string) error { return nil }, openSQLiteURL},
		{[]string{"postgres", "postgresql"}, "postgres://…", checkPostgresURL, openPostgresURL},
		{[]string{"http", "https"}, "http(s)://…", checkWebhookURL, openWebhookURL},
		{[]string{"nats"}, "nats:<subject prefix>", checkNATSURL, openNATSURL},
		{[]string{"stdout"}, "stdout:", checkStdoutURL, openStdoutURL},
		kafkaScheme(), amqpScheme(), redisScheme(),
	}
}

// forms lists how a URL may look.
func forms() string {
	var forms []string
	for _, s := range schemes() {
		forms = append(forms, s.form)
	}
	return strings.Join(forms, ", ")
}

// schemeForm is what may be shown: "password=hunter2 host=[::1]" has a colon too.
var schemeForm = regexp.MustCompile(`^[a-z]{1,16}$`)

// find is the scheme of a URL.
func find(url string) (scheme, error) {
	name, _, ok := strings.Cut(url, ":")
	if !ok {
		return scheme{}, errors.New("has no scheme; it accepts " + forms())
	}
	for _, s := range schemes() {
		if slices.Contains(s.names, name) {
			return s, nil
		}
	}
	if !schemeForm.MatchString(name) {
		return scheme{}, errors.New("begins with no scheme; it accepts " + forms())
	}
	return scheme{}, fmt.Errorf("has the scheme %q; it accepts %s", name, forms())
}

// ValidateURL checks the form of a destination's URL without connecting; its
// errors never show the URL, which may hold a password.
func ValidateURL(url string) error {
	s, err := find(url)
	if err != nil {
		return err
	}
	return s.check(url)
}

// Open makes the destination that cfg.URL names.
func Open(ctx context.Context, cfg Config, deps Deps) (Destination, error) {
	s, err := find(cfg.URL)
	if err == nil {
		err = s.check(cfg.URL)
	}
	if err != nil {
		return nil, fmt.Errorf("FLOWGATE_CONSUMER_URL: %w", err)
	}
	deps.Logger = deps.Logger.With("component", "consumers")
	return s.open(ctx, cfg, deps)
}

func openSQLiteURL(ctx context.Context, cfg Config, deps Deps) (Destination, error) {
	path := strings.TrimPrefix(cfg.URL, "sqlite:")
	if path == "" {
		path = filepath.Join(deps.DataDir, "messages.db")
	}
	return OpenSQLite(ctx, path, cfg, deps.Registerer, deps.Logger)
}

func checkPostgresURL(url string) error {
	scheme, _, _ := strings.Cut(url, ":")
	// Without the slashes it would be read as "key=value key=value".
	if _, err := pgxpool.ParseConfig(url); err != nil || !strings.HasPrefix(url, scheme+"://") {
		return errors.New("is not a PostgreSQL URL like postgres://user:password@host:5432/database")
	}
	return nil
}

func openPostgresURL(_ context.Context, cfg Config, deps Deps) (Destination, error) {
	return OpenPostgres(cfg, deps.Registerer, deps.Logger)
}
