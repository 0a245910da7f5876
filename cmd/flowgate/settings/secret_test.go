package settings

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func secretFile(t *testing.T, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestASecretComesFromAFile(t *testing.T) {
	for content, want := range map[string]string{
		"s3cr3t": "s3cr3t", "s3cr3t\n": "s3cr3t", "s3cr3t\r\n": "s3cr3t", " s3 cr3t ": " s3 cr3t ", "a=b\n": "a=b", "two\nlines\n": "two\nlines",
	} {
		environ := []string{"FLOWGATE_NATS_URL=nats://h", "FLOWGATE_NATS_USER=u", "FLOWGATE_NATS_PASSWORD_FILE=" + secretFile(t, content)}
		if c, err := Load(environ); err != nil || c.NATS.Password != want {
			t.Errorf("%q: %q, %v; want %q", content, c.NATS.Password, err, want)
		}
	}
	c, err := Load([]string{"FLOWGATE_CONSUMER_URL_FILE=" + secretFile(t, "postgres://u:p@db/x\n")})
	if err != nil || c.Consumer.URL != "postgres://u:p@db/x" {
		t.Errorf("%q, %v", c.Consumer.URL, err)
	}
}

// Which variables may come from a file: passwords, tokens, and URLs that may hold
// them.
func TestSecretsAreThese(t *testing.T) {
	var got []string
	for _, v := range Variables(nil) {
		if v.Secret {
			got = append(got, v.Name)
		}
		if !v.Secret && (strings.Contains(v.Name, "PASSWORD") || strings.Contains(v.Name, "TOKEN") || strings.HasSuffix(v.Name, "_URL")) {
			t.Errorf("%s is no secret", v.Name)
		}
	}
	for _, want := range []string{"FLOWGATE_NATS_URL", "FLOWGATE_NATS_PASSWORD", "FLOWGATE_NATS_TOKEN", "FLOWGATE_CONSUMER_URL", "FLOWGATE_ADMIN_TOKEN"} {
		if !slices.Contains(got, want) {
			t.Errorf("%s is no secret", want)
		}
	}
}

func TestASecretsFileIsRefused(t *testing.T) {
	empty, blank, full := secretFile(t, ""), secretFile(t, "\n"), secretFile(t, "s3cr3t")
	missing := filepath.Join(t.TempDir(), "missing")
	for name, c := range map[string]struct {
		environ []string
		says    []string
	}{
		"missing":     {[]string{"FLOWGATE_CONSUMER_URL_FILE=" + missing}, []string{"FLOWGATE_CONSUMER_URL_FILE", missing, "no such file"}},
		"a directory": {[]string{"FLOWGATE_CONSUMER_URL_FILE=" + t.TempDir()}, []string{"FLOWGATE_CONSUMER_URL_FILE", "directory"}},
		"empty":       {[]string{"FLOWGATE_CONSUMER_URL_FILE=" + empty}, []string{"FLOWGATE_CONSUMER_URL_FILE", empty, "is empty"}},
		"a newline":   {[]string{"FLOWGATE_CONSUMER_URL_FILE=" + blank}, []string{"FLOWGATE_CONSUMER_URL_FILE", blank, "is empty"}},
		"both set": {
			[]string{"FLOWGATE_CONSUMER_URL_FILE=" + full, "FLOWGATE_CONSUMER_URL=sqlite:x.db"},
			[]string{"FLOWGATE_CONSUMER_URL", "FLOWGATE_CONSUMER_URL_FILE", "set one of them"},
		},
	} {
		lines := faults(t, c.environ...)
		if len(lines) != 1 {
			t.Errorf("%s: want one fault:\n%s", name, strings.Join(lines, "\n"))
		}
		for _, part := range c.says {
			if !strings.Contains(lines[0], part) {
				t.Errorf("%s: the error does not say %q: %s", name, part, lines[0])
			}
		}
	}
}

func TestSecretsNeverStandInErrors(t *testing.T) {
	for _, value := range []string{"postgres://u:s3cr3t@:bad:port/x", "gopher://u:s3cr3t@h", "postgres//u:s3cr3t@h", "u:s3cr3t@h", "s3cr3t", "postgres://s3cr3t@h:x"} {
		for _, environ := range [][]string{
			{"FLOWGATE_CONSUMER_URL=" + value}, {"FLOWGATE_CONSUMER_URL_FILE=" + secretFile(t, value)},
		} {
			if text := strings.Join(faults(t, environ...), "\n"); strings.Contains(text, "s3cr3t") {
				t.Errorf("%s", text)
			}
		}
	}
	environ := []string{"FLOWGATE_NATS_PASSWORD=s3cr3t", "FLOWGATE_NATS_TOKEN=s3cr3t", "FLOWGATE_NATS_URL=nats://u:s3cr3t@h", "FLOWGATE_NATS_CONFIG=x", "FLOWGATE_NAME=X"}
	if text := strings.Join(faults(t, environ...), "\n"); strings.Contains(text, "s3cr3t") {
		t.Errorf("%s", text)
	}
}

func TestMaskURL(t *testing.T) {
	for in, want := range map[string]string{
		"":                                     "",
		"sqlite:":                              "sqlite:",
		"sqlite:/var/lib/x.db":                 "sqlite:/var/lib/x.db",
		"postgres://db:5432/x?sslmode=disable": "postgres://db:5432/x?sslmode=disable",
		"postgres://u@db/x":                    "postgres://u@db/x",
		"postgres://u:s3cr3t@db/x":             "postgres://u:******@db/x",
		"postgres://u:@db/x":                   "postgres://u:******@db/x",
		"postgres://u:s3@cr3t@db/x":            "postgres://u:******@db/x",
		"postgres://u:s3%2Fcr3t@db/x":          "postgres://u:******@db/x",
		"postgres://u:s3,cr3t@a,b/x":           "postgres://u:******@a,b/x",
		"postgres://db/x?user=u&password=s3":   "postgres://db/x?password=******&user=u",
		"postgres://db/x?sslPassword=s3":       "postgres://db/x?sslPassword=******",
		"https://h/in?api_key=s3&v=1":          "https://h/in?api_key=******&v=1",
		"https://s3cr3t@h/in":                  "https://******@h/in",
		"nats://s3cr3t@h:4222":                 "nats://******@h:4222",
		"wss://s3cr3t@h":                       "wss://******@h",
		"nats://h:4222":                        "nats://h:4222",
		// Not to be taken apart for sure: hidden whole.
		"s3cr3t@h":                          "******",
		"u:s3cr3t@h":                        "******",
		"postgres:u:s3cr3t@h":               "******",
		"postgres://u:123#s3@db/x":          "******",
		"postgres://u:12/s3@db/x":           "******",
		"postgres://u:s3cr3t@db/%zz":        "******",
		"postgres://db/x?password=s3;cr3t":  "******",
		"postgres://db/x?password=100%s3cr": "******",
	} {
		if got := MaskURL(in); got != want {
			t.Errorf("%s is shown as %s, want %s", in, got, want)
		}
	}
}

func TestSecretsAreMaskedInTheList(t *testing.T) {
	for _, c := range []struct{ name, value, want string }{
		{"FLOWGATE_NATS_PASSWORD", "s3cr3t", "******"},
		{"FLOWGATE_NATS_TOKEN", "s3cr3t", "******"},
		{"FLOWGATE_ADMIN_TOKEN", "s3cr3t", "******"},
		{"FLOWGATE_NATS_URL", "nats://u:s3cr3t@a:4222,nats://s3cr3t@b,nats://c", "nats://u:******@a:4222,nats://******@b,nats://c"},
		{"FLOWGATE_NATS_URL", "nats://u:12,s3cr3t@a", "******"},
		{"FLOWGATE_NATS_URL", "u:s3cr3t@a:4222", "******"},
		{"FLOWGATE_CONSUMER_URL", "postgres://u:s3cr3t@db/x", "postgres://u:******@db/x"},
		{"FLOWGATE_CONSUMER_URL", "postgres://u:12,s3cr3t@db/x", "postgres://u:******@db/x"},
		{"FLOWGATE_CONSUMER_URL", "sqlite:x.db", "sqlite:x.db"},
	} {
		for _, line := range []string{c.name + "=" + c.value, c.name + "_FILE=" + secretFile(t, c.value+"\n")} {
			found := false
			for _, v := range Variables([]string{line}) {
				if strings.Contains(v.Value, "s3cr3t") {
					t.Errorf("%s: %s shows the secret: %s", line, v.Name, v.Value)
				}
				if v.Name == c.name {
					found = v.Value == c.want && v.Set && v.Secret
				}
			}
			if !found {
				t.Errorf("%s: not set to %s", line, c.want)
			}
		}
	}
}
