package settings

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
)

// Load reads the configuration from an environment of NAME=value lines. All that
// is wrong comes in one error, a line each: values that do not parse or are out of
// bounds, unknown FLOWGATE_ names with the nearest known one. An empty value is an
// unset one.
func Load(environ []string) (Config, error) {
	var c Config
	list := fields(&c)
	set, unread, errs := gather(environ, list)
	errs = append(errs, assign(list, set, unread)...)
	if err := c.Validate(); err != nil {
		for fault := range strings.SplitSeq(err.Error(), "\n") {
			// With a value that could not be read, what does not fit to it is no
			// second fault.
			if !slices.ContainsFunc(variable.FindAllString(fault, -1), func(name string) bool { return unread[name] }) {
				errs = append(errs, errors.New(fault))
			}
		}
	}
	if err := errors.Join(errs...); err != nil {
		return Config{}, fmt.Errorf("the configuration is wrong:\n%w", err)
	}
	return c, nil
}

// assign parses what is set, or the default, into the fields; those that could not be
// read are noted in unread.
func assign(list []field, set map[string]string, unread map[string]bool) (errs []error) {
	for _, f := range list {
		value, ok := set[f.name]
		if !ok {
			value = f.fallback
		}
		if value == "" {
			continue
		}
		if err := f.set(value); err != nil {
			if f.secret {
				err = errors.New("the value is not understood") // and not shown
			}
			errs = append(errs, fmt.Errorf("%s: %w", f.name, err))
			unread[f.name] = true
		}
	}
	return errs
}

// variable finds the names of variables in a text.
var variable = regexp.MustCompile(prefix + `[A-Z0-9_]+`)

// gather picks our variables out of an environment, reads the _FILE ones, and
// finds the names that nothing knows. unread are those whose file is at fault.
func gather(environ []string, list []field) (set map[string]string, unread map[string]bool, errs []error) {
	known := map[string]field{}
	for _, f := range list {
		known[f.name] = f
	}
	set, unread = map[string]string{}, map[string]bool{}
	files := map[string]string{}
	var unknown []string
	for _, line := range environ {
		name, value, _ := strings.Cut(line, "=")
		if value == "" || !strings.HasPrefix(name, prefix) || foreign(name) {
			continue
		}
		if _, ok := known[name]; ok {
			set[name] = value
		} else if f, ok := known[strings.TrimSuffix(name, "_FILE")]; ok && f.secret && strings.HasSuffix(name, "_FILE") {
			files[f.name] = value
		} else {
			unknown = append(unknown, name)
		}
	}
	for _, f := range list {
		path, ok := files[f.name]
		if !ok {
			continue
		}
		if _, both := set[f.name]; both {
			errs = append(errs, fmt.Errorf("%s: %s_FILE is set too; set one of them", f.name, f.name))
			continue
		}
		content, err := os.ReadFile(path)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s_FILE: %w", f.name, err))
			unread[f.name] = true
			continue
		}
		text := strings.TrimSuffix(strings.TrimSuffix(string(content), "\n"), "\r")
		if text == "" {
			errs = append(errs, fmt.Errorf("%s_FILE: %s is empty", f.name, path))
			unread[f.name] = true
			continue
		}
		set[f.name] = text
	}
	slices.Sort(unknown)
	for _, name := range unknown {
		errs = append(errs, fmt.Errorf("%s: unknown variable; did you mean %s?", name, nearest(name, list)))
	}
	return set, unread, errs
}

// foreign reports whether a name with our prefix is somebody else's: Kubernetes
// injects some for a Service called flowgate, the tests have their own.
func foreign(name string) bool {
	rest := strings.TrimPrefix(name, prefix)
	return strings.HasPrefix(rest, "TEST_") ||
		rest == "SERVICE_HOST" || rest == "SERVICE_PORT" || strings.HasPrefix(rest, "SERVICE_PORT_") ||
		rest == "PORT" || strings.HasPrefix(rest, "PORT_")
}

// nearest is the known name with the least edits between, in capitals.
func nearest(name string, list []field) string {
	name = strings.ToUpper(name)
	best, least := "", 1<<30
	for _, f := range list {
		if name == f.name+"_FILE" {
			return f.name // only secrets come as a file
		}
		candidates := []string{f.name}
		if f.secret {
			candidates = append(candidates, f.name+"_FILE")
		}
		for _, c := range candidates {
			if d := edits(name, c); d < least {
				best, least = c, d
			}
		}
	}
	return best
}

// edits is the Levenshtein distance.
func edits(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := 1; i <= len(a); i++ {
		diagonal := row[0]
		row[0] = i
		for j := 1; j <= len(b); j++ {
			change := diagonal
			if a[i-1] != b[j-1] {
				change++
			}
			diagonal = row[j]
			row[j] = min(change, row[j]+1, row[j-1]+1)
		}
	}
	return row[len(b)]
}
