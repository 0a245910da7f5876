package app

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"unicode/utf8"
)

// Problem is an answer of the admin address that is none, as RFC 9457 says.
type Problem struct {
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail"`
}

// problemType is its content type.
const problemType = "application/problem+json"

func writeProblem(w http.ResponseWriter, status int, detail string) {
	w.Header().Set("Content-Type", problemType)
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	// A failure is the client's leaving.
	_ = json.NewEncoder(w).Encode(Problem{Title: http.StatusText(status), Status: status, Detail: detail})
}

func writeJSON(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	encode := json.NewEncoder(w)
	encode.SetIndent("", "  ")
	// A failure is the client's leaving.
	_ = encode.Encode(v)
}

// These bound what a change may send. A set has to hold the limits that were set one by
// one: 10,000 with reasons are 2 MB.
const (
	maxBody    = 1 << 20
	maxSetBody = 8 << 20
)

// readJSON reads the body of a change; what is wrong with it is answered.
func readJSON(w http.ResponseWriter, r *http.Request, most int64, into any) bool {
	text, err := io.ReadAll(http.MaxBytesReader(w, r.Body, most))
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		writeProblem(w, http.StatusRequestEntityTooLarge, fmt.Sprintf("the body is over %d bytes", most))
		return false
	}
	if err == nil {
		err = ReadJSON(text, into)
	}
	if err != nil {
		writeProblem(w, http.StatusBadRequest, fmt.Sprintf("the body cannot be read: %v", err))
		return false
	}
	return true
}

// maxObjects bounds what a text makes in memory: an empty object is 3 bytes there, and
// a hundred here.
const maxObjects = 400_000

// ReadJSON reads one JSON value that somebody wrote, without fields that are not
// understood.
func ReadJSON(text []byte, into any) error {
	if !utf8.Valid(text) { // the decoder would put another character in its place
		return errors.New("it is not UTF-8")
	}
	if n := bytes.Count(text, []byte{'{'}); n > maxObjects {
		return fmt.Errorf("it holds %d objects; the most is %d", n, maxObjects)
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	switch err := d.Decode(into); {
	case errors.Is(err, io.EOF):
		return errors.New("it is empty")
	case errors.Is(err, io.ErrUnexpectedEOF):
		return errors.New("it ends too early")
	case err != nil:
		if e, ok := errors.AsType[*json.UnmarshalTypeError](err); ok { // it names types of Go
			field := e.Field[strings.LastIndex(e.Field, ".")+1:]
			return fmt.Errorf("%s accepts no %s, byte %d", cmp.Or(field, "it"), e.Value, e.Offset)
		}
		return err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("something follows the JSON")
	}
	return nil
}
