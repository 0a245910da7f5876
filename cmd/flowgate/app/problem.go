package app

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
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

// maxBody bounds what a change may send.
const maxBody = 1 << 20

// readJSON reads the body of a change; what is wrong with it is answered.
func readJSON(w http.ResponseWriter, r *http.Request, into any) bool {
	d := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxBody))
	d.DisallowUnknownFields()
	err := d.Decode(into)
	if err == nil {
		if _, e := d.Token(); !errors.Is(e, io.EOF) {
			err = errors.New("something follows the JSON")
			if _, ok := errors.AsType[*http.MaxBytesError](e); ok {
				err = e
			}
		}
	}
	if err == nil {
		return true
	}
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		writeProblem(w, http.StatusRequestEntityTooLarge, fmt.Sprintf("the body is over %d bytes", maxBody))
		return false
	}
	if errors.Is(err, io.EOF) {
		err = errors.New("it is empty")
	}
	writeProblem(w, http.StatusBadRequest, fmt.Sprintf("the body cannot be read: %v", err))
	return false
}
