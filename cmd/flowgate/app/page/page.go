// Package page is the operator's page: files that are in the program as they are, and
// that ask nothing but the admin address that served them. Their URLs are relative, so
// that a proxy may put the address below any prefix.
package page

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"net/http"
	"path"
	"strings"
	"time"
)

//go:embed assets
var files embed.FS

// policy lets the page run its own files and ask its own address, and nothing else. No
// other page may show it in a frame.
const policy = "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; object-src 'none'"

// Handler serves the page at / and its files below /assets/.
func Handler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name := strings.TrimPrefix(r.URL.Path, "/")
		if name == "" {
			name = "assets/index.html"
		}
		content, err := files.ReadFile(name)
		if err != nil {
			http.NotFound(w, r)
			return
		}
		sum := sha256.Sum256(content)
		h := w.Header()
		h.Set("Content-Type", contentType(name))
		h.Set("Content-Security-Policy", policy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("X-Frame-Options", "DENY")
		h.Set("Referrer-Policy", "no-referrer")
		// Kept, and asked for again each time: a new gateway's page is never mixed with an
		// old one's.
		h.Set("Cache-Control", "no-cache")
		h.Set("ETag", `"`+hex.EncodeToString(sum[:8])+`"`)
		http.ServeContent(w, r, name, time.Time{}, bytes.NewReader(content))
	})
}

// contentType does not ask the machine's tables for what a browser insists on.
func contentType(name string) string {
	switch path.Ext(name) {
	case ".html":
		return "text/html; charset=utf-8"
	case ".js":
		return "text/javascript; charset=utf-8"
	case ".css":
		return "text/css; charset=utf-8"
	case ".svg":
		return "image/svg+xml"
	}
	return "text/plain; charset=utf-8"
}
