package settings

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// LoadAdmin reads what a client of a running gateway needs, the admin variables
// alone. Whatever else the environment holds, right or wrong, is the gateway's.
func LoadAdmin(environ []string) (Admin, error) {
	var c Config
	const ours = prefix + "ADMIN_"
	list := slices.DeleteFunc(fields(&c), func(f field) bool { return !strings.HasPrefix(f.name, ours) })
	environ = slices.DeleteFunc(slices.Clone(environ), func(line string) bool {
		name, _, _ := strings.Cut(line, "=")
		return !slices.ContainsFunc(list, func(f field) bool {
			return name == f.name || f.secret && name == f.name+"_FILE"
		})
	})
	set, _, errs := gather(environ, list)
	for _, f := range list {
		value, ok := set[f.name]
		if !ok {
			value = f.fallback
		}
		if value == "" {
			continue
		}
		if err := f.set(value); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", f.name, err))
		}
	}
	errs = append(errs, c.Admin.validate())
	return c.Admin, errors.Join(errs...)
}
