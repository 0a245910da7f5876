package algorithms

import "unicode/utf8"

// matchGlob is path.Match, but that * and ? match a slash too: keys are no paths, and a
// limit on free* that free/1 slips through is none. It backtracks to the last * alone, so
// it costs at most the product of both lengths. A pattern that is none matches nothing.
func matchGlob(pattern, key string) bool {
	p, k := 0, 0
	star, from := -1, 0 // the last *, and where what comes after it was tried
	for k < len(key) {
		if p < len(pattern) && pattern[p] == '*' {
			star, from = p, k
			p++
			continue
		}
		if n, width, ok := matchOne(pattern[p:], key[k:]); ok {
			p, k = p+n, k+width
			continue
		}
		if star < 0 {
			return false
		}
		from++
		p, k = star+1, from
	}
	for p < len(pattern) && pattern[p] == '*' {
		p++
	}
	return p == len(pattern)
}

// matchOne matches the first character of a key with what stands first in a pattern, no
// *, and gives how long both are.
func matchOne(pattern, key string) (n, width int, ok bool) {
	if pattern == "" {
		return 0, 0, false
	}
	r, width := utf8.DecodeRuneInString(key)
	switch pattern[0] {
	case '?':
		return 1, width, true
	case '[':
		n, ok = matchClass(pattern, r)
		return n, width, ok
	case '\\':
		return 2, 1, len(pattern) > 1 && pattern[1] == key[0]
	}
	return 1, 1, pattern[0] == key[0]
}

// matchClass matches a character with the class that a pattern begins with, and gives
// its length.
func matchClass(pattern string, r rune) (n int, ok bool) {
	n = 1
	not := n < len(pattern) && pattern[n] == '^'
	if not {
		n++
	}
	next := func() rune {
		if n < len(pattern) && pattern[n] == '\\' {
			n++
		}
		c, width := utf8.DecodeRuneInString(pattern[min(n, len(pattern)):])
		n += width
		return c
	}
	in := false
	for first := true; first || n < len(pattern) && pattern[n] != ']'; first = false {
		low := next()
		high := low
		if n < len(pattern) && pattern[n] == '-' {
			n++
			high = next()
		}
		in = in || low <= r && r <= high
	}
	if n >= len(pattern) {
		return n, false
	}
	return n + 1, in != not
}
