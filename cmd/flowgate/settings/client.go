package settings

import (
	"errors"
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
	set, unread, errs := gather(environ, list)
	errs = append(errs, assign(list, set, unread)...)
	errs = append(errs, c.Admin.validate())
	return c.Admin, errors.Join(errs...)
}
