package consumers

import (
	"encoding/json"
	"strings"
	"unicode/utf8"
)

// tableName is the one table that messages are written to.
const tableName = "flowgate_messages"

// columns are the table's, in the order that rows are written.
var columns = [...]string{"id", "tenant", "topic", "seq", "attempt", "payload", "headers", "admitted_at", "released_at", "written_at"}

// headersJSON encodes headers as {"K":["v"]}. What JSON in a database cannot hold,
// bytes that are no UTF-8 and NUL, becomes U+FFFD; payloads are never touched.
func headersJSON(h map[string][]string) string {
	if len(h) == 0 {
		return "{}"
	}
	clean := make(map[string][]string, len(h))
	for k, vs := range h {
		values := make([]string, len(vs))
		for i, v := range vs {
			values[i] = storable(v)
		}
		clean[storable(k)] = values
	}
	b, err := json.Marshal(clean)
	if err != nil {
		panic(err) // of strings
	}
	return string(b)
}

func storable(s string) string {
	if utf8.ValidString(s) && strings.IndexByte(s, 0) < 0 {
		return s
	}
	return strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "\uFFFD")
}
