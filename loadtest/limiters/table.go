package main

import (
	"fmt"
	"io"
	"strconv"
	"text/tabwriter"
)

// ours is flowgate's name in the tables.
const ours = "flowgate"

// report is what one measurement gives.
type report struct {
	Table  table
	Floors []floor
	// Notes say why figures lack.
	Notes []string
}

// table is figures by contestant and column.
type table struct {
	Name    string   `json:"name"`
	Unit    string   `json:"unit"`
	Columns []string `json:"columns"`
	Rows    []*row   `json:"rows"`
}

// row is one contestant's figures; a column it cannot do is not there.
type row struct {
	Contestant string             `json:"contestant"`
	Values     map[string]float64 `json:"values"`
}

// row gives a contestant's row, a new one if there is none.
func (t *table) row(contestant string) *row {
	for _, r := range t.Rows {
		if r.Contestant == contestant {
			return r
		}
	}
	r := &row{contestant, map[string]float64{}}
	t.Rows = append(t.Rows, r)
	return r
}

// bestPeer is the smallest figure of a column that is not ours.
func (t *table) bestPeer(column string) (contestant string, best float64) {
	for _, r := range t.Rows {
		if v, ok := r.Values[column]; ok && r.Contestant != ours && (contestant == "" || v < best) {
			contestant, best = r.Contestant, v
		}
	}
	return contestant, best
}

// floor is a bound on a figure.
type floor struct {
	What string `json:"what"`
	// Value is nil if it was not measured, which misses the bound.
	Value *float64 `json:"value"`
	Least float64  `json:"least,omitempty"`
	Most  float64  `json:"most,omitempty"`
	Met   bool     `json:"met"`
}

func (f floor) String() string {
	bound := "at least " + number(f.Least)
	if f.Least == 0 {
		bound = "at most " + number(f.Most)
	}
	value := "not measured"
	if f.Value != nil {
		value = number(*f.Value)
	}
	return fmt.Sprintf("%s: %s, %s", f.What, value, bound)
}

// times bounds how many times as fast as the best peer ours is in a column.
func (t *table) times(column string, least float64) floor {
	own, there := t.row(ours).Values[column]
	peer, best := t.bestPeer(column)
	f := floor{What: fmt.Sprintf("%s, %s, times as fast as %s", t.Name, column, peer), Least: least}
	if there && peer != "" {
		f.Value = new(best / own)
		f.Met = *f.Value >= least
	}
	return f
}

// most bounds a contestant's figure.
func (t *table) most(contestant, column string, most float64) floor {
	f := floor{What: fmt.Sprintf("%s, %s, %s", t.Name, contestant, column), Most: most}
	if v, there := t.row(contestant).Values[column]; there {
		f.Value = &v
		f.Met = v <= most
	}
	return f
}

// noAllocations bounds a figure of allocations: what the runtime allocates
// meanwhile for itself is far less than one in a hundred decisions.
const noAllocations = 0.01

func (r report) print(out io.Writer) error {
	fmt.Fprintf(out, "%s, %s\n", r.Table.Name, r.Table.Unit)
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprint(w, "  ")
	for _, c := range r.Table.Columns {
		fmt.Fprint(w, "\t", c)
	}
	fmt.Fprintln(w)
	for _, row := range r.Table.Rows {
		fmt.Fprint(w, "  ", row.Contestant)
		for _, c := range r.Table.Columns {
			if v, ok := row.Values[c]; ok {
				fmt.Fprint(w, "\t", number(v))
			} else {
				fmt.Fprint(w, "\t-")
			}
		}
		fmt.Fprintln(w)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	for _, note := range r.Notes {
		fmt.Fprintln(out, "  "+note)
	}
	for _, f := range r.Floors {
		verdict := ""
		if !f.Met {
			verdict = "  MISSED"
		}
		fmt.Fprintf(out, "  %s%s\n", f, verdict)
	}
	_, err := fmt.Fprintln(out)
	return err
}

func number(v float64) string {
	if v < 10 {
		return strconv.FormatFloat(v, 'f', 2, 64)
	}
	return strconv.FormatFloat(v, 'f', 1, 64)
}
