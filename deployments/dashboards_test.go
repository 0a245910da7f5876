package deployments

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
)

// dashboard is what is checked of one.
type dashboard struct {
	UID, Title    string
	SchemaVersion int
	Templating    struct {
		List []struct{ Name, Type string }
	}
	Annotations struct {
		List []struct{ Name, Expr string }
	}
	Panels []panel
}

type panel struct {
	ID          int
	Title, Type string
	Datasource  struct{ UID string }
	Targets     []struct {
		Expr       string
		Datasource struct{ UID string }
	}
	GridPos struct{ X, Y, W, H int }
}

func dashboards(t *testing.T) map[string]dashboard {
	t.Helper()
	files, err := filepath.Glob("grafana/dashboards/*.json")
	if err != nil || len(files) != 3 {
		t.Fatalf("%v, %v: want three dashboards", files, err)
	}
	all := map[string]dashboard{}
	for _, name := range files {
		var d dashboard
		if err := json.Unmarshal([]byte(read(t, name)), &d); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		all[strings.TrimSuffix(filepath.Base(name), ".json")] = d
	}
	return all
}

// query is one of a panel or an annotation.
type query struct{ where, expr string }

func queries(t *testing.T) (list []query) {
	t.Helper()
	for _, d := range dashboards(t) {
		for _, p := range d.Panels {
			for i, target := range p.Targets {
				list = append(list, query{fmt.Sprintf("%s, %s, query %d", d.Title, p.Title, i+1), target.Expr})
			}
		}
		for _, a := range d.Annotations.List {
			list = append(list, query{d.Title + ", annotation " + a.Name, a.Expr})
		}
	}
	return list
}

// A dashboard keeps its address, asks the data source that is chosen, and shows each panel
// in a place of its own.
func TestDashboards(t *testing.T) {
	for name, d := range dashboards(t) {
		if d.UID != name || d.SchemaVersion != 39 || d.Title == "" {
			t.Errorf("%s: uid %s, schema %d, title %q", name, d.UID, d.SchemaVersion, d.Title)
		}
		if l := d.Templating.List; len(l) != 2 || l[0].Name != "datasource" || l[0].Type != "datasource" || l[1].Name != "job" {
			t.Errorf("%s: variables %v", name, d.Templating.List)
		}
		ids, cells := map[int]bool{}, map[[2]int]string{}
		for _, p := range d.Panels {
			if ids[p.ID] || len(p.Targets) == 0 || p.Datasource.UID != "${datasource}" {
				t.Errorf("%s, %s: id %d, %d queries, data source %s", name, p.Title, p.ID, len(p.Targets), p.Datasource.UID)
			}
			ids[p.ID] = true
			for _, target := range p.Targets {
				if target.Datasource.UID != "${datasource}" {
					t.Errorf("%s, %s: data source %s", name, p.Title, target.Datasource.UID)
				}
			}
			if g := p.GridPos; g.X < 0 || g.W < 1 || g.X+g.W > 24 {
				t.Errorf("%s, %s: %+v is outside", name, p.Title, g)
			}
			for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
				for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
					if other := cells[[2]int{x, y}]; other != "" {
						t.Fatalf("%s: %s lies over %s", name, p.Title, other)
					}
					cells[[2]int{x, y}] = p.Title
				}
			}
		}
	}
}
