package scenarios

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

// Every scenario can be read, and each but the soak is over within a minute or so.
func TestScenariosAreRight(t *testing.T) {
	names, err := Names()
	if err != nil {
		t.Fatal(err)
	}
	if len(names) != 14 {
		t.Errorf("%d scenarios: %q", len(names), names)
	}
	for _, name := range names {
		s, err := Load(name)
		if err != nil {
			t.Error(err)
			continue
		}
		if most := time.Minute; name != "soak" && time.Duration(s.For) > most {
			t.Errorf("%s lasts %s", name, time.Duration(s.For))
		}
	}
	path := filepath.Join(t.TempDir(), "mine.yaml")
	text, err := files.ReadFile("steady.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	if s, err := Load(path); err != nil || s.Name != "mine" {
		t.Errorf("from a file: %v", err)
	}
	if _, err := Load("stedy"); err == nil {
		t.Error("an unknown name was accepted")
	}
}
