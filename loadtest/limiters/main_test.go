package main

import (
	"bytes"
	"encoding/json"
	"io"
	"strings"
	"testing"
)

func TestRunShort(t *testing.T) {
	var out, tables bytes.Buffer
	if err := run([]string{"-short", "-json"}, &out, &tables); err != nil {
		t.Fatal(err)
	}
	var o outcome
	if err := json.Unmarshal(out.Bytes(), &o); err != nil {
		t.Fatal(err)
	}
	if len(o.Tables) != len(measurements) || !o.Short || len(o.Floors) == 0 {
		t.Errorf("%d tables, short %v, %d floors", len(o.Tables), o.Short, len(o.Floors))
	}
	for _, table := range o.Tables {
		if !strings.Contains(tables.String(), table.Name) {
			t.Errorf("%s is not printed", table.Name)
		}
		for _, column := range table.Columns {
			measured := 0
			for _, row := range table.Rows {
				if v, ok := row.Values[column]; ok {
					measured++
					if v <= 0 && !strings.Contains(column, "allocations") {
						t.Errorf("%s, %s, %s: %g", table.Name, row.Contestant, column, v)
					}
				}
			}
			if measured == 0 {
				t.Errorf("%s: nothing in %s", table.Name, column)
			}
		}
	}
	// Of what is said about ours in the first table nothing lacks, and uber's limiter
	// does not refuse.
	first := o.Tables[0]
	if got := len(first.row(ours).Values); got != 5 {
		t.Errorf("%d figures of ours, want 5", got)
	}
	if got := len(first.row("uber-go/ratelimit").Values); got != 3 {
		t.Errorf("%d figures of uber's, want 3", got)
	}
}

func TestRunOnly(t *testing.T) {
	var out bytes.Buffer
	if err := run([]string{"-short", "-only=admission"}, &out, io.Discard); err != nil {
		t.Fatal(err)
	}
	if s := out.String(); !strings.HasPrefix(s, "several rules") || strings.Contains(s, "memory") {
		t.Errorf("%s", s)
	}
}

func TestRunRefuses(t *testing.T) {
	for _, args := range [][]string{{"-only=speed", "-short"}, {"-rounds=0"}, {"keyed"}} {
		if err := run(args, io.Discard, io.Discard); err == nil {
			t.Errorf("%q was accepted", args)
		}
	}
}

func TestFloors(t *testing.T) {
	table := table{Name: "t"}
	table.row(ours).Values["fast"] = 50
	table.row("slow").Values["fast"] = 200
	table.row("peer").Values["fast"] = 90
	table.row("peer").Values["unknown"] = 1
	o := outcome{Floors: []floor{
		table.times("fast", 1.8), table.times("fast", 1.9), table.times("unknown", 1), table.times("nobody", 1),
		table.most(ours, "fast", 50), table.most(ours, "fast", 49), table.most(ours, "unknown", 1),
	}}
	want := []string{
		"t, fast, times as fast as peer: 1.80, at least 1.90",
		"t, unknown, times as fast as peer: not measured, at least 1.00",
		"t, nobody, times as fast as : not measured, at least 1.00",
		"t, flowgate, fast: 50.0, at most 49.0",
		"t, flowgate, unknown: not measured, at most 1.00",
	}
	if got := o.missed(); strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("missed:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestMedian(t *testing.T) {
	for want, values := range map[float64][]float64{2: {9, 1, 2}, 2.5: {3, 1, 2, 9}, 7: {7}} {
		if got := median(values); got != want {
			t.Errorf("%g, want %g", got, want)
		}
	}
}
