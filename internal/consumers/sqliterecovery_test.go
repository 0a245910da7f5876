package consumers

import (
	"database/sql"
	"os"
	"path/filepath"
	"testing"
)

// A table that is dropped and a file that is removed or replaced are made again: the
// rows that follow can be read by whoever opens the file.
func TestSQLiteMakesItsTableAgain(t *testing.T) {
	for name, harm := range map[string]func(t *testing.T, path string, db *sql.DB){
		"table dropped": func(t *testing.T, _ string, db *sql.DB) {
			if _, err := db.ExecContext(t.Context(), "DROP TABLE flowgate_messages"); err != nil {
				t.Fatal(err)
			}
		},
		"file removed": func(t *testing.T, path string, _ *sql.DB) {
			for _, suffix := range []string{"", "-wal", "-shm"} {
				if err := os.Remove(path + suffix); err != nil && !os.IsNotExist(err) {
					t.Fatal(err)
				}
			}
		},
		"file replaced": func(t *testing.T, path string, _ *sql.DB) {
			other := path + ".other"
			s := openSQLite(t, other, nil)
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			for _, suffix := range []string{"-wal", "-shm"} {
				if err := os.Remove(path + suffix); err != nil && !os.IsNotExist(err) {
					t.Fatal(err)
				}
			}
			if err := os.Rename(other, path); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "messages.db")
			s := openSQLite(t, path, nil)
			wantKinds(t, s.Deliver(t.Context(), deliveries(3)), Done, Done, Done)
			harm(t, path, s.db)
			var tries int
			for tries = 1; ; tries++ {
				v := Judge(s.Deliver(t.Context(), []Delivery{aDelivery(9)})[0])
				if v.Kind == Done {
					break
				}
				if v.Kind != Overload || tries == 3 {
					t.Fatalf("attempt %d: %v, %v", tries, v.Kind, v.Err)
				}
			}
			reader, err := sql.Open("sqlite", "file:"+path)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = reader.Close() }()
			if n := scan[int](t, reader, `SELECT count(*) FROM flowgate_messages WHERE id = 'acme/9'`); n != 1 {
				t.Errorf("after %d attempts the row is there %d times for who opens the file", tries, n)
			}
		})
	}
}
