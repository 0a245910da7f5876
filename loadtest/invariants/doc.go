// Package invariants checks what flowgate promises from the outside: from what
// producers were told and from what stands in the database, never from the
// gateway's own counts.
package invariants
