package settings

import (
	"encoding"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/flowgate/flowgate/internal/units"
)

// prefix begins every variable's name.
const prefix = "FLOWGATE_"

// field is one variable and the place of its value.
type field struct {
	name, fallback, meaning string
	secret                  bool
	value                   reflect.Value
}

// fields lists the variables of c in the order of its struct. A walk of our own:
// libraries for this name the Go field in their errors, not the variable, and
// cannot list meanings.
func fields(c *Config) []field {
	var list []field
	var walk func(v reflect.Value, at string)
	walk = func(v reflect.Value, at string) {
		for i := range v.NumField() {
			tag := v.Type().Field(i).Tag
			if below, ok := tag.Lookup("prefix"); ok {
				walk(v.Field(i), at+below)
				continue
			}
			list = append(list, field{
				name: at + tag.Get("env"), fallback: tag.Get("default"), meaning: tag.Get("desc"),
				secret: tag.Get("secret") == "true", value: v.Field(i),
			})
		}
	}
	walk(reflect.ValueOf(c).Elem(), prefix)
	return list
}

// set parses s into the field.
func (f field) set(s string) error {
	switch p := f.value.Addr().Interface().(type) {
	case encoding.TextUnmarshaler:
		return p.UnmarshalText([]byte(s))
	case *time.Duration:
		d, err := units.ParseDuration(s)
		if err != nil {
			return err
		}
		*p = d
	case *string:
		*p = s
	case *[]string:
		for part := range strings.SplitSeq(s, ",") {
			if part = strings.TrimSpace(part); part != "" {
				*p = append(*p, part)
			}
		}
	case *int:
		n, err := strconv.ParseUint(s, 10, 31)
		if err != nil || s[0] == '+' {
			return fmt.Errorf("%q is not a whole number", s)
		}
		*p = int(n)
	case *uint64:
		n, err := strconv.ParseUint(s, 10, 63)
		if err != nil || s[0] == '+' {
			return fmt.Errorf("%q is not a whole number", s)
		}
		*p = n
	default:
		panic("settings: no parser for the type of " + f.name)
	}
	return nil
}
