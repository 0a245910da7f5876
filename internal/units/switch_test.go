package units

import (
	"testing"
	"time"
)

func TestSwitch(t *testing.T) {
	for text, want := range map[string]Switch{"on": true, "off": false} {
		var s Switch = !want
		if err := s.UnmarshalText([]byte(text)); err != nil || s != want || s.String() != text {
			t.Errorf("%s: %v, %v", text, s, err)
		}
	}
	for _, text := range []string{"", "ON", "true", "1", "yes"} {
		var s Switch
		if err := s.UnmarshalText([]byte(text)); err == nil {
			t.Errorf("%q is accepted", text)
		}
	}
}

func TestSpan(t *testing.T) {
	for text, want := range map[string]Span{"off": 0, "30s": Span(30 * time.Second), "1h30m": Span(90 * time.Minute)} {
		s := Span(1)
		if err := s.UnmarshalText([]byte(text)); err != nil || s != want || s.String() != text {
			t.Errorf("%s: %v, %v", text, s, err)
		}
	}
	for _, text := range []string{"", "0", "0s", "-1s", "30", "never"} {
		var s Span
		if err := s.UnmarshalText([]byte(text)); err == nil {
			t.Errorf("%q is accepted", text)
		}
	}
}
