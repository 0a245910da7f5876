package main

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// find takes the command off the words, and returns what is left of them. If there
// is none, group are those that begin with the first word.
func find(words []string) (cmd command, rest []string, group []command, ok bool) {
	for _, cmd := range commands() {
		first, second, two := strings.Cut(cmd.name, " ")
		switch {
		case first != words[0]:
		case !two:
			return cmd, words[1:], nil, true
		case len(words) > 1 && words[1] == second:
			return cmd, words[2:], nil, true
		default:
			group = append(group, cmd)
		}
	}
	return command{}, nil, group, false
}

func isHelp(word string) bool { return word == "-h" || word == "--help" || word == "-help" }

// list prints commands, a line each.
func (c cli) list(w io.Writer, commands []command) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, cmd := range commands {
		fmt.Fprintf(t, "  %s\t%s\n", cmd.line(), cmd.meaning)
	}
	_ = t.Flush() // as with every print
}
