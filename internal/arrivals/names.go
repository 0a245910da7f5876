package arrivals

import (
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"
)

// What a gateway takes, said once more so that this package needs no gateway; a test of the
// simulation holds the tenants' against the door's.
var tenantName = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)

func validTenant(s string) bool { return tenantName.MatchString(s) }

func validTopic(s string) bool {
	wild := func(token string) bool { return token == "" || token == "*" || token == ">" }
	return utf8.ValidString(s) && !strings.ContainsAny(s, " \t\r\n\x00") && !slices.ContainsFunc(strings.Split(s, "."), wild)
}
