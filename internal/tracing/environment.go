package tracing

import (
	"fmt"
	"strings"
)

// Wanted reports whether an environment of NAME=value lines asks for traces, and in a way
// that is understood. It asks if it names a collector; a refusal is said in err and is no
// reason to stop: these variables are often set for all programs of a cluster at once.
func Wanted(environ []string) (on bool, err error) {
	set := map[string]string{}
	for _, line := range environ {
		if name, value, _ := strings.Cut(line, "="); strings.HasPrefix(name, "OTEL_") && value != "" {
			set[name] = value
		}
	}
	first := func(names ...string) (name, value string) {
		for _, name = range names {
			if value = set[name]; value != "" {
				return name, value
			}
		}
		return "", ""
	}
	if _, to := first("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"); to == "" || strings.EqualFold(set["OTEL_SDK_DISABLED"], "true") {
		return false, nil
	}
	switch v := set["OTEL_TRACES_EXPORTER"]; v {
	case "", "otlp":
	case "none":
		return false, nil
	default:
		return false, fmt.Errorf("OTEL_TRACES_EXPORTER is %q; otlp and none are supported", v)
	}
	name, protocol := first("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
	if protocol != "" && protocol != "http/protobuf" {
		return false, fmt.Errorf("%s is %q; http/protobuf alone is supported, on the collector's port 4318 as a rule", name, protocol)
	}
	return true, nil
}
