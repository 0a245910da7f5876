package limits

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/flowgate/flowgate/internal/algorithms"
)

// Entry is one limit that was set while the gateway runs.
type Entry struct {
	Scope Scope            `json:"scope"`
	Key   string           `json:"key"`
	Rules algorithms.Rules `json:"limit"`
	// Author and Reason are for those who read the list later.
	Author string    `json:"author,omitempty"`
	Reason string    `json:"reason,omitempty"`
	At     time.Time `json:"at,omitzero"`
	// Revision is the bucket's.
	Revision uint64 `json:"-"`
}

// Bounds of an entry's texts, in bytes.
const (
	maxAuthor = 100
	maxReason = 500
)

// Validate joins all that is wrong.
func (e Entry) Validate() error {
	return errors.Join(
		validateKey(e.Scope, e.Key),
		validateRules(e.Rules),
		validateText("author", e.Author, maxAuthor),
		validateText("reason", e.Reason, maxReason),
	)
}

func validateRules(rules algorithms.Rules) error {
	if err := (algorithms.Policy{Default: rules}).Validate(); err != nil {
		return fmt.Errorf("limit: %w", err)
	}
	return nil
}

// validateText accepts what a terminal and a log line show as it is.
func validateText(name, s string, most int) error {
	if len(s) > most {
		return fmt.Errorf("%s: %d bytes are too long; the longest is %d", name, len(s), most)
	}
	if !utf8.ValidString(s) {
		return fmt.Errorf("%s: %q is not UTF-8", name, s)
	}
	for _, r := range s {
		if !unicode.IsPrint(r) {
			return fmt.Errorf("%s: %q is not one line of plain text", name, s)
		}
	}
	return nil
}

// UnmarshalJSON reads an entry. Without a limit it is wrong and not unlimited;
// fields that a later version may add are passed over.
func (e *Entry) UnmarshalJSON(text []byte) error {
	var d struct {
		Scope          Scope
		Key            *string
		Limit          *string
		Author, Reason string
		At             time.Time
	}
	if err := json.Unmarshal(text, &d); err != nil {
		return err
	}
	var missing []error
	for _, f := range []struct {
		name   string
		absent bool
	}{{"scope", d.Scope == ""}, {"key", d.Key == nil}, {"limit", d.Limit == nil}} {
		if f.absent {
			missing = append(missing, fmt.Errorf("%s: is missing", f.name))
		}
	}
	if len(missing) > 0 {
		return errors.Join(missing...)
	}
	rules, err := algorithms.ParseRules(*d.Limit)
	if err != nil {
		return fmt.Errorf("limit: %w", err)
	}
	*e = Entry{Scope: d.Scope, Key: *d.Key, Rules: rules, Author: d.Author, Reason: d.Reason, At: d.At}
	return nil
}

// decode reads an entry of the bucket; it must lie where its scope and key say.
func decode(k string, value []byte) (Entry, error) {
	scope, key, err := splitBucketKey(k)
	if err != nil {
		return Entry{}, err
	}
	if !utf8.Valid(value) {
		return Entry{}, errors.New("it is not UTF-8")
	}
	var e Entry
	if err := json.Unmarshal(bytes.TrimSpace(value), &e); err != nil {
		return Entry{}, fmt.Errorf("it cannot be read: %w", err)
	}
	if err := e.Validate(); err != nil {
		return Entry{}, err
	}
	if e.Scope != scope || e.Key != key {
		return Entry{}, fmt.Errorf("it says that it is for %s %q, but its name in the bucket is that of another", e.Scope, e.Key)
	}
	return e, nil
}

// same reports whether two entries of one key say the same. Who set it, and when,
// is no difference.
func (e Entry) same(other Entry) bool {
	return e.Rules.String() == other.Rules.String() && e.Reason == other.Reason
}

// sorted orders entries by scope, then by key.
func sorted(list []Entry) []Entry {
	order := Scopes()
	slices.SortFunc(list, func(a, b Entry) int {
		return cmp.Or(slices.Index(order, a.Scope)-slices.Index(order, b.Scope), cmp.Compare(a.Key, b.Key))
	})
	return list
}
