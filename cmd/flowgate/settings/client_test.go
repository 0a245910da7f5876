package settings

import (
	"strings"
	"testing"
)

// A client needs two variables and cares for no other.
func TestLoadAdmin(t *testing.T) {
	file := secretFile(t, "s3cr3t\n")
	for name, c := range map[string]struct {
		environ []string
		want    Admin
	}{
		"nothing":               {nil, Admin{Listen: "127.0.0.1:8081"}},
		"both":                  {[]string{"FLOWGATE_ADMIN_LISTEN=h:1", "FLOWGATE_ADMIN_TOKEN=s3cr3t"}, Admin{"h:1", "s3cr3t"}},
		"a file":                {[]string{"FLOWGATE_ADMIN_TOKEN_FILE=" + file}, Admin{"127.0.0.1:8081", "s3cr3t"}},
		"empty":                 {[]string{"FLOWGATE_ADMIN_LISTEN=", "FLOWGATE_ADMIN_TOKEN="}, Admin{Listen: "127.0.0.1:8081"}},
		"the gateway's, wrong":  {[]string{"FLOWGATE_SHAPER_RATE=fast", "FLOWGATE_CONSUMER_URL_FILE=/none"}, Admin{Listen: "127.0.0.1:8081"}},
		"unknown":               {[]string{"FLOWGATE_ADMIN_TOKENS=1", "FLOWGATE_X=1", "X"}, Admin{Listen: "127.0.0.1:8081"}},
		"off, which may be all": {[]string{"FLOWGATE_ADMIN_LISTEN=off"}, Admin{Listen: "off"}},
	} {
		if got, err := LoadAdmin(c.environ); got != c.want || err != nil {
			t.Errorf("%s: %+v, %v; want %+v", name, got, err, c.want)
		}
	}
	for _, c := range []struct{ environ, says string }{
		{"FLOWGATE_ADMIN_LISTEN=8081", "FLOWGATE_ADMIN_LISTEN"},
		{"FLOWGATE_ADMIN_TOKEN=s3 cr3t", "FLOWGATE_ADMIN_TOKEN"},
		{"FLOWGATE_ADMIN_TOKEN_FILE=/none", "FLOWGATE_ADMIN_TOKEN_FILE"},
		{"FLOWGATE_ADMIN_TOKEN=s3cr3t;FLOWGATE_ADMIN_TOKEN_FILE=" + file, "set one of them"},
	} {
		_, err := LoadAdmin(strings.Split(c.environ, ";"))
		if err == nil || !strings.Contains(err.Error(), c.says) || strings.Contains(err.Error(), "cr3t") {
			t.Errorf("%s: %v", c.environ, err)
		}
	}
}

// A token that no header can carry is refused at the start, and not shown.
func TestATokenFitsAHeader(t *testing.T) {
	for _, token := range []string{"s3 cr3t", "s3cr3t\t", "s3cr3tü", "s3cr3t\x7f"} {
		lines := faults(t, "FLOWGATE_ADMIN_TOKEN="+token)
		if len(lines) != 1 || !strings.HasPrefix(lines[0], "FLOWGATE_ADMIN_TOKEN: ") || strings.Contains(lines[0], "cr3t") {
			t.Errorf("%q: %s", token, strings.Join(lines, "\n"))
		}
	}
}
