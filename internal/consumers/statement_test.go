package consumers

import (
	"slices"
	"strings"
	"testing"
)

func TestParseStatement(t *testing.T) {
	for _, test := range []struct {
		sql, postgres, sqlite string // what comes out, or "!" and what the error says; sqlite "=": as written
		names                 string
	}{
		{`INSERT INTO t VALUES (:id, :payload)`, `INSERT INTO t VALUES ($1, $2)`, `=`, "id payload"},
		{`insert into t values (:id, :payload, :id)`, `insert into t values ($1, $2, $3)`, "", "id payload id"},
		{`insert into t values (:id, :payload, :id)`, "", `=`, "id payload"},
		{"  INSERT INTO t SELECT :seq ;\n-- done\n", `INSERT INTO t SELECT $1`, `INSERT INTO t SELECT :seq`, "seq"},
		{`INSERT INTO t VALUES (:id::text, convert_from(:payload, 'UTF8')::jsonb)`, `INSERT INTO t VALUES ($1::text, convert_from($2, 'UTF8')::jsonb)`, "", "id payload"},
		{`INSERT INTO t VALUES (':id', ":id", 'it''s :id', :id)`, `INSERT INTO t VALUES (':id', ":id", 'it''s :id', $1)`, `=`, "id"},
		{`INSERT INTO t VALUES (E'\':id', :id)`, `INSERT INTO t VALUES (E'\':id', $1)`, "", "id"},
		{`INSERT INTO t VALUES (fine'\', :id)`, `INSERT INTO t VALUES (fine'\', $1)`, "", "id"},
		{`INSERT INTO t VALUES ('\', :id)`, `INSERT INTO t VALUES ('\', $1)`, `=`, "id"},
		{"/* :id ; */ INSERT -- :nope\nINTO t VALUES (:id)", "/* :id ; */ INSERT -- :nope\nINTO t VALUES ($1)", `=`, "id"},
		{`/* a /* b */ :nope */ INSERT INTO t VALUES (:id)`, `/* a /* b */ :nope */ INSERT INTO t VALUES ($1)`, `!:nope`, "id"},
		{`INSERT INTO t VALUES ($$ :id; $$, $a$ $$ :id $a$, :id)`, `INSERT INTO t VALUES ($$ :id; $$, $a$ $$ :id $a$, $1)`, "", "id"},
		{`INSERT INTO a$b$c VALUES (:id)`, `INSERT INTO a$b$c VALUES ($1)`, `=`, "id"},
		{"INSERT INTO [:id] VALUES (`:id`, :id)", "", "=", "id"},
		{`SELECT f(a[1 : 2], b => :id, c := :tenant)`, `SELECT f(a[1 : 2], b => $1, c := $2)`, "", "id tenant"},
		{`UPDATE t SET n = n + 1 WHERE headers ? 'k' AND h @> :headers`, `UPDATE t SET n = n + 1 WHERE headers ? 'k' AND h @> $1`, "", "headers"},
		{`INSERT INTO größe VALUES (:id)`, `INSERT INTO größe VALUES ($1)`, `=`, "id"},
		{`INSERT INTO t VALUES (:admitted_at, :released_at, :attempt, :topic)`, `INSERT INTO t VALUES ($1, $2, $3, $4)`, `=`, "admitted_at released_at attempt topic"},
		{`INSERT INTO t VALUES (1)`, `INSERT INTO t VALUES (1)`, `=`, ""},

		{`INSERT INTO t VALUES (:ID)`, `!:ID; there are :id, :tenant`, `!:ID`, ""},
		{`INSERT INTO t VALUES (:id2)`, `!:id2`, `!:id2`, ""},
		{`INSERT INTO t VALUES ($1)`, `!"$" at byte 23; parameters are named`, `!named`, ""},
		{`INSERT INTO t VALUES (?, @id)`, "", `!"?" at byte 23`, ""},
		{`INSERT INTO t VALUES (@id)`, "", `!"@" at byte 23`, ""},
		{`INSERT INTO t VALUES (:id); DELETE FROM t`, `!more than one statement`, `!more than one statement`, ""},
		{`INSERT INTO t VALUES ('x`, `!quote that begins at byte 23`, `!quote`, ""},
		{`INSERT INTO t VALUES ("x`, `!quote`, `!quote`, ""},
		{`INSERT INTO t VALUES ($a$ x`, `!quote`, "", ""},
		{`INSERT INTO t /* x`, `!comment that begins at byte 15`, `!comment`, ""},
		{`BEGIN`, `!begins with "BEGIN"`, `!begins with "BEGIN"`, ""},
		{`COMMIT; INSERT INTO t VALUES (:id)`, `!more than one`, `!more than one`, ""},
		{`-- nothing`, `!begins with ""`, `!begins with ""`, ""},
		{` ; `, `!begins with ""`, `!begins with ""`, ""},
		{"INSERT INTO t VALUES ('\x00')", `!no text`, `!no text`, ""},
		{"INSERT INTO t VALUES ('\xff')", `!no text`, `!no text`, ""},
	} {
		for d, want := range map[dialect]string{postgresSQL: test.postgres, sqliteSQL: test.sqlite} {
			if want == "" {
				continue
			}
			if want == "=" {
				want = test.sql
			}
			s, err := parseStatement(test.sql, d)
			if says, wrong := strings.CutPrefix(want, "!"); wrong {
				if err == nil || !strings.Contains(err.Error(), says) {
					t.Errorf("%s: %v; want an error that says %q", test.sql, err, says)
				}
				continue
			}
			if err != nil || s.text != want || strings.Join(s.names, " ") != test.names {
				t.Errorf("%s:\n got %s %v %v\nwant %s [%s]", test.sql, s.text, s.names, err, want, test.names)
			}
		}
	}
}

// FuzzParseStatement: what is taken for no parameter comes out as it went in, and
// each parameter is one of ours.
func FuzzParseStatement(f *testing.F) {
	for _, sql := range []string{
		`INSERT INTO t VALUES (:id, 'a''b', E'\'', "q", $x$ ; $x$, :payload::jsonb) -- c`, "SELECT [a], `b` /* /* */ */ ; ", "UPDATE t SET a=:id;;", "\xff", ":", "$", "$$", "e'", "::id", "/*", ":=:id",
	} {
		f.Add(sql)
	}
	f.Fuzz(func(t *testing.T, sql string) {
		for _, d := range []dialect{postgresSQL, sqliteSQL} {
			s, err := parseStatement(sql, d)
			if err != nil {
				continue
			}
			for _, name := range s.names {
				if !slices.Contains(parameters[:], name) {
					t.Fatalf("parameter %q", name)
				}
			}
			if d == sqliteSQL && !strings.Contains(sql, s.text) {
				t.Fatalf("%q became %q", sql, s.text)
			}
			if len(s.names) == 0 && !strings.Contains(sql, s.text) {
				t.Fatalf("%q became %q", sql, s.text)
			}
			if d == sqliteSQL { // what came out reads the same again
				again, err := parseStatement(s.text, d)
				if err != nil || again.text != s.text || !slices.Equal(again.names, s.names) {
					t.Fatalf("%q: again %q, %v", s.text, again.text, err)
				}
			}
		}
	})
}
