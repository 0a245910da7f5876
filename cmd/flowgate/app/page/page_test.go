package page_test

import (
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"regexp"
	"strings"
	"testing"

	"github.com/flowgate/flowgate/cmd/flowgate/app/page"
)

func ask(method, target string, headers ...string) *http.Response {
	r := httptest.NewRequest(method, target, nil)
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	page.Handler().ServeHTTP(w, r)
	return w.Result()
}

func TestWhatIsServed(t *testing.T) {
	for target, kind := range map[string]string{
		"/": "text/html; charset=utf-8", "/assets/main.js": "text/javascript; charset=utf-8", "/assets/style.css": "text/css; charset=utf-8",
		"/assets/icon.svg": "image/svg+xml", "/assets/uplot/LICENSE": "text/plain; charset=utf-8",
	} {
		res := ask("GET", target)
		h := res.Header
		if res.StatusCode != 200 || h.Get("Content-Type") != kind || res.ContentLength == 0 {
			t.Errorf("%s: %s %v", target, res.Status, h)
		}
		policy := h.Get("Content-Security-Policy")
		for _, part := range []string{"default-src 'self'", "frame-ancestors 'none'", "form-action 'none'", "base-uri 'none'"} {
			if !strings.Contains(policy, part) {
				t.Errorf("%s: the policy lacks %s: %s", target, part, policy)
			}
		}
		if strings.Contains(policy, "unsafe") || h.Get("X-Content-Type-Options") != "nosniff" || h.Get("X-Frame-Options") != "DENY" || h.Get("Referrer-Policy") != "no-referrer" {
			t.Errorf("%s: %v", target, h)
		}
		if again := ask("GET", target, "If-None-Match", h.Get("ETag")); again.StatusCode != http.StatusNotModified {
			t.Errorf("%s again: %s", target, again.Status)
		}
	}
	for _, target := range []string{"/assets", "/assets/", "/assets/uplot", "/assets/nothing.js", "/index.html", "/page.go", "/assets/../page.go", "/favicon.ico"} {
		if res := ask("GET", target); res.StatusCode != http.StatusNotFound {
			t.Errorf("%s: %s", target, res.Status)
		}
	}
}

var (
	reference = regexp.MustCompile(`(?:src|href)="([^"#]+)"|from '([^']+)'`)
	// address finds what would leave the address, or a proxy's prefix.
	address = regexp.MustCompile("https?://|['\"`(]/(?:/|api|assets)|url\\(|@import")
)

// What the files name is there, and relative.
func TestReferences(t *testing.T) {
	n := 0
	err := fs.WalkDir(os.DirFS("."), "assets", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || strings.HasPrefix(name, "assets/uplot/") {
			return err
		}
		b, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		text := strings.ReplaceAll(string(b), `xmlns="http://www.w3.org/2000/svg"`, "")
		for _, found := range address.FindAllString(text, -1) {
			t.Errorf("%s: %s", name, found)
		}
		for _, m := range reference.FindAllStringSubmatch(text, -1) {
			target := m[1] + m[2]
			if m[2] != "" {
				target = path.Join("/", path.Dir(name), target)
			}
			n++
			if res := ask("GET", path.Join("/", target)); res.StatusCode != 200 {
				t.Errorf("%s: %s: %s", name, target, res.Status)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if n < 20 {
		t.Errorf("only %d references were found", n)
	}
}
