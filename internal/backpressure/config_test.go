package backpressure

import (
	"strings"
	"testing"
	"time"

	"github.com/flowgate/flowgate/internal/units"
)

func TestConfig(t *testing.T) {
	pc, n := units.Percent, units.Absolute
	for _, c := range []struct {
		name      string
		high      uint64
		low, most units.Share
		bytes     units.Size
		wrong     string // the variables that the error names
		marks     Marks
	}{
		{"defaults", 10_000, pc(80), pc(200), units.GiB, "", Marks{8000, 10_000, 20_000, 1 << 30}},
		{"numbers", 100, n(60), n(100), units.MiB, "", Marks{60, 100, 100, 1 << 20}},
		{"smallest", 1, pc(80), pc(100), units.MiB, "", Marks{0, 1, 1, 1 << 20}},
		{"LOW of 0", 10, n(0), pc(200), units.GiB, "", Marks{0, 10, 20, 1 << 30}},
		{"LOW just below", 10, n(9), n(10), units.GiB, "", Marks{9, 10, 10, 1 << 30}},
		{"rounded down", 15, pc(50), pc(150), units.GiB, "", Marks{7, 15, 22, 1 << 30}},
		{"largest", 100_000_000, pc(99), pc(1000), units.GiB, "", Marks{99_000_000, 100_000_000, 1_000_000_000, 1 << 30}},
		{"HIGH 0", 0, pc(80), pc(200), units.GiB, "HIGH", Marks{}},
		{"HIGH too high", 100_000_001, pc(80), pc(200), units.GiB, "HIGH", Marks{}},
		{"LOW at HIGH", 10, n(10), pc(200), units.GiB, "LOW", Marks{}},
		{"LOW at 100%", 10, pc(100), pc(200), units.GiB, "LOW", Marks{}},
		{"LOW above HIGH", 10, n(11), pc(200), units.GiB, "LOW", Marks{}},
		{"MAX below HIGH", 10, pc(80), n(9), units.GiB, "MAX", Marks{}},
		{"MAX at 99%", 10, pc(80), pc(99), units.GiB, "MAX", Marks{}},
		{"MAX too high", 100_000_000, pc(80), pc(1001), units.GiB, "MAX", Marks{}},
		{"MAX beyond 64 bits", 100_000_000, pc(80), pc(1 << 62), units.GiB, "MAX", Marks{}},
		{"bytes", 10, pc(80), pc(200), units.MiB - 1, "MAX_BYTES", Marks{}},
		{"all", 10, pc(100), pc(10), 0, "LOW MAX MAX_BYTES", Marks{}},
	} {
		cfg := Config{High: c.high, Low: c.low, Max: c.most, MaxBytes: c.bytes}
		err := cfg.Validate()
		if c.wrong == "" {
			if err != nil || cfg.Marks() != c.marks {
				t.Errorf("%s: %+v, %v", c.name, cfg.Marks(), err)
			}
			continue
		}
		names := strings.Fields(c.wrong)
		if err == nil || strings.Count(err.Error(), "\n")+1 != len(names) {
			t.Errorf("%s: want %s named in\n%v", c.name, c.wrong, err)
			continue
		}
		for _, name := range names {
			if !strings.Contains(err.Error(), "FLOWGATE_BACKPRESSURE_"+name+":") {
				t.Errorf("%s: %s is not named in\n%v", c.name, name, err)
			}
		}
	}
}

func TestConfigOfTheRules(t *testing.T) {
	good := func() Config {
		return Config{High: 1000, Low: units.Percent(80), Max: units.Percent(200), MaxBytes: units.GiB}
	}
	for _, c := range []struct {
		name   string
		change func(*Config) error
		wrong  string // the variable that the error names
		want   Rules
	}{
		{"all off", func(*Config) error { return nil }, "", Rules{}},
		{"fair", func(c *Config) error { c.Fair = true; return nil }, "", Rules{Fair: true}},
		{"a number for a tenant", func(c *Config) error { return c.TenantMax.UnmarshalText([]byte("50")) }, "", Rules{TenantMax: 50}},
		{"a part for a tenant", func(c *Config) error { return c.TenantMax.UnmarshalText([]byte("30%")) }, "", Rules{TenantMax: 300}},
		{"off for a tenant", func(c *Config) error { return c.TenantMax.UnmarshalText([]byte("off")) }, "", Rules{}},
		{"nothing for a tenant", func(c *Config) error { return c.TenantMax.UnmarshalText([]byte("0")) }, "TENANT_MAX", Rules{}},
		{"too small a part for a tenant", func(c *Config) error { c.High = 50; return c.TenantMax.UnmarshalText([]byte("1%")) }, "TENANT_MAX", Rules{}},
		{"age", func(c *Config) error { return c.HighAge.UnmarshalText([]byte("90s")) }, "", Rules{HighAge: 90 * time.Second}},
		{"too short an age", func(c *Config) error { return c.HighAge.UnmarshalText([]byte("999ms")) }, "HIGH_AGE", Rules{}},
		{"too long an age", func(c *Config) error { return c.HighAge.UnmarshalText([]byte("1001h")) }, "HIGH_AGE", Rules{}},
		{"outage", func(c *Config) error { return c.HighOutage.UnmarshalText([]byte("5m")) }, "", Rules{HighOutage: 5 * time.Minute}},
		{"too short an outage", func(c *Config) error { return c.HighOutage.UnmarshalText([]byte("1ms")) }, "HIGH_OUTAGE", Rules{}},
	} {
		cfg := good()
		if err := c.change(&cfg); err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		err := cfg.Validate()
		if c.wrong != "" {
			if err == nil || !strings.HasPrefix(err.Error(), "FLOWGATE_BACKPRESSURE_"+c.wrong+": ") {
				t.Errorf("%s: %v", c.name, err)
			}
			continue
		}
		c.want.Marks = cfg.Marks()
		if err != nil || cfg.Rules() != c.want {
			t.Errorf("%s: %+v, %v", c.name, cfg.Rules(), err)
		}
	}
	for _, text := range []string{"-1", "1e3", "0.5", "ten", "on", "101001%", ""} {
		var m TenantMax
		if err := m.UnmarshalText([]byte(text)); err == nil || !strings.Contains(err.Error(), "off") {
			t.Errorf("%q: %v", text, err)
		}
	}
	for _, text := range []string{"off", "50", "30%"} {
		var m TenantMax
		if err := m.UnmarshalText([]byte(text)); err != nil || m.String() != text {
			t.Errorf("%q is read as %s, %v", text, m, err)
		}
	}
}
