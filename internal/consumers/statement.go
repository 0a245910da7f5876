package consumers

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// parameters are the names that FLOWGATE_CONSUMER_SQL may use, each with a colon
// before it.
var parameters = [...]string{"id", "tenant", "topic", "seq", "attempt", "payload", "headers", "admitted_at", "released_at"}

// verbs begin a statement that writes a message. What opens or ends a transaction
// is not among them: a batch is one transaction, and it is ours.
var verbs = []string{"INSERT", "REPLACE", "UPDATE", "DELETE", "MERGE", "WITH", "SELECT", "CALL"}

// dialect is how a database reads SQL, as far as it matters for finding parameters.
type dialect uint8

const (
	postgresSQL dialect = iota
	sqliteSQL
)

// statement is one's own statement with its parameters found.
type statement struct {
	// text is what the database gets: for PostgreSQL with $1, $2, … in the place of
	// names, for SQLite, which knows names, as it was written.
	text string
	// names are the parameters by their number, which for SQLite are those of first use.
	names []string
}

// has says whether the statement uses a parameter.
func (s statement) has(name string) bool { return slices.Contains(s.names, name) }

// sqlDialect is that of a destination's URL; false: it is no SQL database.
func sqlDialect(url string) (dialect, bool) {
	switch name, _, _ := strings.Cut(url, ":"); name {
	case "postgres", "postgresql":
		return postgresSQL, true
	case "sqlite":
		return sqliteSQL, true
	}
	return 0, false
}

// checkStatement checks the form of FLOWGATE_CONSUMER_SQL; whether its tables and
// columns are there is seen when it is prepared.
func checkStatement(c Config) error {
	if c.SQL == "" {
		return nil
	}
	d, ok := sqlDialect(c.URL)
	if !ok {
		return errors.New("is for the destinations sqlite and postgres; FLOWGATE_CONSUMER_URL names another")
	}
	_, err := parseStatement(c.SQL, d)
	return err
}

// parseStatement reads one SQL statement with named parameters. String literals,
// quoted identifiers, comments, dollar quotes and casts are left as they are; a
// colon is a parameter's only if a letter or an underscore follows it.
func parseStatement(sql string, d dialect) (statement, error) {
	if !utf8.ValidString(sql) || strings.IndexByte(sql, 0) >= 0 {
		return statement{}, errors.New("holds bytes that are no text")
	}
	p := statementParser{sql: sql, dialect: d}
	if err := p.parse(); err != nil {
		return statement{}, err
	}
	if !slices.Contains(verbs, p.verb) {
		return statement{}, fmt.Errorf("begins with %q; it has to be one statement that begins with %s", p.verb, strings.Join(verbs, ", "))
	}
	return statement{strings.TrimSpace(p.out.String()), p.names}, nil
}

// statementParser goes over a statement once.
type statementParser struct {
	sql     string
	dialect dialect
	at      int // next byte
	out     strings.Builder
	names   []string
	verb    string // the first word in upper case; empty before it
	ended   bool   // a semicolon was there
}

func (p *statementParser) parse() error {
	for p.at < len(p.sql) {
		n, comment, err := p.skip()
		if err != nil {
			return err
		}
		blank := comment || n == 0 && strings.IndexByte(" \t\r\n\f\v", p.sql[p.at]) >= 0
		if p.ended && !blank {
			return errors.New("holds more than one statement")
		}
		switch {
		case p.ended:
			p.at += max(n, 1)
		case n > 0:
			p.copy(n)
		case p.sql[p.at] == ';':
			p.ended = true
			p.at++
		case p.sql[p.at] == ':':
			if err := p.colon(); err != nil {
				return err
			}
		case isWordStart(p.sql[p.at]):
			word := p.word(p.at)
			if p.verb == "" {
				p.verb = strings.ToUpper(word)
			}
			p.copy(len(word))
		default:
			if err := p.foreign(); err != nil {
				return err
			}
			p.copy(1)
		}
	}
	return nil
}

func (p *statementParser) copy(n int) {
	p.out.WriteString(p.sql[p.at : p.at+n])
	p.at += n
}

// skip gives the length of what stands here and can hold no parameter; 0: nothing
// of the kind does.
func (p *statementParser) skip() (n int, comment bool, err error) {
	rest := p.sql[p.at:]
	switch {
	case strings.HasPrefix(rest, "--"):
		if i := strings.IndexByte(rest, '\n'); i >= 0 {
			return i + 1, true, nil
		}
		return len(rest), true, nil
	case strings.HasPrefix(rest, "/*"):
		if n := commentLength(rest, p.dialect == postgresSQL); n > 0 {
			return n, true, nil
		}
		return 0, true, p.unclosed("comment")
	case rest[0] == '\'', rest[0] == '"', p.dialect == sqliteSQL && rest[0] == '`':
		n = quotedLength(rest, p.dialect == postgresSQL && rest[0] == '\'' && p.escapes())
	case p.dialect == sqliteSQL && rest[0] == '[':
		n = strings.IndexByte(rest, ']') + 1
	case p.dialect == postgresSQL && rest[0] == '$' && !p.afterWord():
		tag := dollarTag(rest)
		if tag == "" {
			return 0, false, nil
		}
		if i := strings.Index(rest[len(tag):], tag); i >= 0 {
			n = i + 2*len(tag)
		}
	default:
		return 0, false, nil
	}
	if n == 0 {
		return 0, false, p.unclosed("quote")
	}
	return n, false, nil
}

func (p *statementParser) unclosed(what string) error {
	return fmt.Errorf("holds a %s that begins at byte %d and does not end", what, p.at+1)
}

// escapes says whether the quote here is that of an E'…' string of PostgreSQL's.
func (p *statementParser) escapes() bool {
	if p.at == 0 || p.sql[p.at-1]|0x20 != 'e' {
		return false
	}
	return p.at == 1 || !isWord(p.sql[p.at-2])
}

func (p *statementParser) afterWord() bool { return p.at > 0 && isWord(p.sql[p.at-1]) }

// colon takes a parameter, a cast, or a colon that is something else.
func (p *statementParser) colon() error {
	rest := p.sql[p.at:]
	switch {
	case strings.HasPrefix(rest, "::"), strings.HasPrefix(rest, ":="):
		p.copy(2)
		return nil
	case len(rest) < 2 || !isWordStart(rest[1]):
		p.copy(1)
		return nil
	}
	name := p.word(p.at + 1)
	if !slices.Contains(parameters[:], name) {
		return fmt.Errorf("holds the parameter :%s; there are :%s", name, strings.Join(parameters[:], ", :"))
	}
	if p.dialect == postgresSQL {
		// A number each time: a type may be deduced for each place by itself.
		p.names = append(p.names, name)
		p.out.WriteString("$" + strconv.Itoa(len(p.names)))
	} else {
		if !slices.Contains(p.names, name) {
			p.names = append(p.names, name)
		}
		p.out.WriteString(":" + name)
	}
	p.at += 1 + len(name)
	return nil
}

// foreign refuses the parameters that a database has beside ours: they would stay
// without a value.
func (p *statementParser) foreign() error {
	c := p.sql[p.at]
	next := byte(0)
	if p.at+1 < len(p.sql) {
		next = p.sql[p.at+1]
	}
	switch {
	case p.dialect == postgresSQL && c == '$' && isDigit(next) && !p.afterWord(),
		p.dialect == sqliteSQL && (c == '?' || (c == '@' || c == '$' || c == '#') && isWord(next)):
		return fmt.Errorf("holds %q at byte %d; parameters are named: :%s", string(c), p.at+1, strings.Join(parameters[:], ", :"))
	}
	return nil
}

// word is the identifier or number that begins at a byte.
func (p *statementParser) word(at int) string {
	end := at
	for end < len(p.sql) && (isWord(p.sql[end]) || end > at && p.sql[end] == '$') {
		end++
	}
	return p.sql[at:end]
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }

// isWordStart: bytes of other alphabets are letters to both databases.
func isWordStart(c byte) bool {
	return c == '_' || c|0x20 >= 'a' && c|0x20 <= 'z' || c >= utf8.RuneSelf
}

func isWord(c byte) bool { return isWordStart(c) || isDigit(c) }

// quotedLength is the length of what stands in quotes, a doubled one being part of
// it; 0: it does not end.
func quotedLength(s string, backslash bool) int {
	for i := 1; i < len(s); i++ {
		switch {
		case backslash && s[i] == '\\':
			i++
		case s[i] == s[0] && i+1 < len(s) && s[i+1] == s[0]:
			i++
		case s[i] == s[0]:
			return i + 1
		}
	}
	return 0
}

// commentLength is that of a comment between /* and */, which nest in PostgreSQL;
// 0: it does not end.
func commentLength(s string, nests bool) int {
	depth := 0
	for i := 0; i+1 < len(s); i++ {
		switch {
		case s[i] == '/' && s[i+1] == '*' && (nests || depth == 0):
			depth++
			i++
		case s[i] == '*' && s[i+1] == '/':
			depth--
			i++
			if depth == 0 {
				return i + 1
			}
		}
	}
	return 0
}

// dollarTag is the $tag$ that s begins with; empty: none.
func dollarTag(s string) string {
	for i := 1; i < len(s); i++ {
		switch {
		case s[i] == '$':
			return s[:i+1]
		case i == 1 && !isWordStart(s[i]), !isWord(s[i]):
			return ""
		}
	}
	return ""
}

// openStatement reads FLOWGATE_CONSUMER_SQL for a destination.
func openStatement(sql string, d dialect, log *slog.Logger) (statement, error) {
	s, err := parseStatement(sql, d)
	if err != nil {
		return statement{}, fmt.Errorf("FLOWGATE_CONSUMER_SQL: %w", err)
	}
	if !s.has("id") {
		log.Warn("FLOWGATE_CONSUMER_SQL does not use :id: a message that is delivered twice, as after a crash, is written twice unless the statement sees to it otherwise")
	}
	return s, nil
}
