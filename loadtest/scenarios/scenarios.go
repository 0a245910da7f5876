// Package scenarios are the load tests that come with flowgate, a YAML file each.
package scenarios

import (
	"embed"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/flowgate/flowgate/loadtest/scenario"
)

//go:embed *.yaml
var files embed.FS

// Names are theirs, in order.
func Names() ([]string, error) {
	found, err := files.ReadDir(".")
	if err != nil {
		return nil, err
	}
	var names []string
	for _, f := range found {
		names = append(names, strings.TrimSuffix(f.Name(), ".yaml"))
	}
	return names, nil
}

// Load reads one of them by its name, or any file.
func Load(name string) (*scenario.Scenario, error) {
	if strings.HasSuffix(name, ".yaml") || strings.HasSuffix(name, ".yml") {
		text, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		return scenario.Parse(strings.TrimSuffix(filepath.Base(name), filepath.Ext(name)), text)
	}
	text, err := files.ReadFile(name + ".yaml")
	if err != nil {
		names, _ := Names()
		return nil, fmt.Errorf("no scenario %q: one of %s, or the path of a .yaml file is right", name, strings.Join(names, ", "))
	}
	return scenario.Parse(name, text)
}
