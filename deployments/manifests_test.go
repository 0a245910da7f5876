package deployments

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/flowgate/flowgate/cmd/flowgate/settings"
)

// margin is what is left between the end of draining and being killed.
const margin = 5 * time.Second

// pinned is an image with a whole version.
var pinned = regexp.MustCompile(`^[a-z/.-]+:v?\d+\.\d+(\.\d+)?$`)

// load reads an environment as the gateway does, which knows every variable and value.
func load(t *testing.T, where string, environ []string) settings.Config {
	t.Helper()
	cfg, err := settings.Load(environ)
	if err != nil {
		t.Errorf("%s: %v", where, err)
	}
	return cfg
}

// stopsIn checks that draining ends before the gateway is killed.
func stopsIn(t *testing.T, where string, cfg settings.Config, grace time.Duration) {
	t.Helper()
	if least := cfg.ShutdownDelay + cfg.ShutdownTimeout + margin; grace < least {
		t.Errorf("%s: killed after %s, which should be at least %s", where, grace, least)
	}
}

// dockerfile gives the image's own environment and its user.
func dockerfile(t *testing.T) (environ []string, user string) {
	t.Helper()
	text := read(t, "Dockerfile")
	environ = regexp.MustCompile(`FLOWGATE_[A-Z_]+=\S+`).FindAllString(text, -1)
	found := regexp.MustCompile(`(?m)^USER (\d+)`).FindStringSubmatch(text)
	if len(environ) != 4 || found == nil {
		t.Fatalf("Dockerfile: variables %v, user %v", environ, found)
	}
	return environ, found[1]
}

func port(address string) string {
	_, p, _ := net.SplitHostPort(address)
	return p
}

func TestCompose(t *testing.T) {
	var file struct {
		Services map[string]struct {
			Image       string
			Environment map[string]string
			Ports       []string
			Volumes     []string
			Grace       string `yaml:"stop_grace_period"`
		}
		Volumes map[string]any
	}
	if err := yaml.Unmarshal([]byte(read(t, "compose.yaml")), &file); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"flowgate", "postgres", "prometheus", "grafana"} {
		s, ok := file.Services[name]
		if !ok {
			t.Fatalf("no service %s", name)
		}
		if name != "flowgate" && !pinned.MatchString(s.Image) {
			t.Errorf("%s: image %q is not pinned by a version", name, s.Image)
		}
		for _, p := range s.Ports {
			if !strings.HasPrefix(p, "127.0.0.1:") {
				t.Errorf("%s: port %s is open to all the world", name, p)
			}
		}
		for _, v := range s.Volumes {
			from, _, _ := strings.Cut(v, ":")
			if _, ok := file.Volumes[from]; ok {
				continue
			}
			if _, err := os.Stat(from); err != nil {
				t.Errorf("%s: volume %s: %v", name, v, err)
			}
		}
	}
	environ, _ := dockerfile(t)
	gate := file.Services["flowgate"]
	for name, value := range gate.Environment {
		environ = append(environ, name+"="+strings.ReplaceAll(value, "${POSTGRES_PASSWORD:-flowgate}", "x"))
	}
	cfg := load(t, "compose.yaml", environ)
	grace, err := time.ParseDuration(gate.Grace)
	if err != nil {
		t.Fatal(err)
	}
	stopsIn(t, "compose.yaml", cfg, grace)
	for _, address := range []string{cfg.NATS.Listen, cfg.Ingress.HTTPListen, cfg.Admin.Listen} {
		if p := port(address); !slices.Contains(gate.Ports, "127.0.0.1:"+p+":"+p) {
			t.Errorf("flowgate listens on %s, which is not in %v", address, gate.Ports)
		}
	}
	if target := "flowgate:" + port(cfg.Admin.Listen); !strings.Contains(read(t, "prometheus/prometheus.yml"), target) {
		t.Errorf("prometheus.yml does not scrape %s", target)
	}
	for _, name := range []string{"grafana/provisioning/datasources/prometheus.yaml", "grafana/provisioning/dashboards/flowgate.yaml"} {
		if err := yaml.Unmarshal([]byte(read(t, name)), &struct{}{}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if !slices.Contains(file.Services["grafana"].Volumes, "./grafana/dashboards:/etc/grafana/dashboards:ro") ||
		!strings.Contains(read(t, "grafana/provisioning/dashboards/flowgate.yaml"), "path: /etc/grafana/dashboards\n") {
		t.Error("Grafana looks for the dashboards elsewhere")
	}
}

// object is what is checked of Kubernetes' ones.
type object struct {
	Kind     string
	Metadata struct{ Name string }
	Data     map[string]string
	Spec     struct {
		Selector map[string]any
		Ports    []struct {
			TargetPort string `yaml:"targetPort"`
		}
		Template struct {
			Metadata struct{ Labels map[string]string }
			Spec     struct {
				Grace           int64 `yaml:"terminationGracePeriodSeconds"`
				SecurityContext struct {
					RunAsUser string `yaml:"runAsUser"`
				} `yaml:"securityContext"`
				Containers []struct {
					Image string
					Env   []struct{ Name, Value string }
					From  []struct {
						ConfigMapRef struct{ Name string } `yaml:"configMapRef"`
					} `yaml:"envFrom"`
					Ports []struct {
						Name string
						Port string `yaml:"containerPort"`
					}
					Startup   probe `yaml:"startupProbe"`
					Liveness  probe `yaml:"livenessProbe"`
					Readiness probe `yaml:"readinessProbe"`
				}
			}
		}
	}
}

type probe struct {
	Get struct{ Path, Port string } `yaml:"httpGet"`
}

// The base as kubectl renders it; no cluster has seen it.
func TestKustomizeBase(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), program(t, "kubectl", "kubectl"), "kustomize", "kustomize/base").Output()
	if err != nil {
		t.Fatal(err)
	}
	objects := map[string]object{}
	for d := yaml.NewDecoder(bytes.NewReader(out)); ; {
		var o object
		if err := d.Decode(&o); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		objects[o.Kind] = o
	}
	pod := objects["StatefulSet"].Spec.Template
	if len(pod.Spec.Containers) != 1 {
		t.Fatalf("rendered:\n%s", out)
	}
	c := pod.Spec.Containers[0]
	if len(c.From) != 1 || c.From[0].ConfigMapRef.Name != objects["ConfigMap"].Metadata.Name {
		t.Errorf("environment from %v, the ConfigMap is %s", c.From, objects["ConfigMap"].Metadata.Name)
	}
	var environ []string
	for name, value := range objects["ConfigMap"].Data {
		environ = append(environ, name+"="+value)
	}
	for _, v := range c.Env {
		if v.Name == "FLOWGATE_CONSUMER_URL" { // of a secret
			v.Value = "postgres://postgres/flowgate"
		}
		environ = append(environ, v.Name+"="+v.Value)
	}
	cfg := load(t, "kustomize/base", environ)
	stopsIn(t, "kustomize/base", cfg, time.Duration(pod.Spec.Grace)*time.Second)
	if !pinned.MatchString(c.Image) {
		t.Errorf("image %q is not pinned by a version", c.Image)
	}
	if _, user := dockerfile(t); pod.Spec.SecurityContext.RunAsUser != user {
		t.Errorf("runs as %s, the image's files are %s's", pod.Spec.SecurityContext.RunAsUser, user)
	}
	ports := map[string]string{}
	for _, p := range c.Ports {
		ports[p.Name] = p.Port
	}
	for name, address := range map[string]string{"nats": cfg.NATS.Listen, "http": cfg.Ingress.HTTPListen, "admin": cfg.Admin.Listen} {
		if ports[name] != port(address) {
			t.Errorf("port %s is %s, the gateway listens on %s", name, ports[name], address)
		}
	}
	for path, p := range map[string]probe{"/livez": c.Liveness, "/readyz": c.Readiness} {
		if p.Get.Path != path || p.Get.Port != "admin" {
			t.Errorf("probe %+v, want %s at admin", p, path)
		}
	}
	if c.Startup.Get.Path != "/livez" || c.Startup.Get.Port != "admin" {
		t.Errorf("startup probe %+v", c.Startup)
	}
	service := objects["Service"]
	for _, p := range service.Spec.Ports {
		if ports[p.TargetPort] == "" || p.TargetPort == "admin" {
			t.Errorf("the Service leads to %s", p.TargetPort)
		}
	}
	for name, value := range service.Spec.Selector {
		if pod.Metadata.Labels[name] != value {
			t.Errorf("the Service selects %s=%v, the pod has %v", name, value, pod.Metadata.Labels)
		}
	}
	if objects["PodDisruptionBudget"].Kind == "" {
		t.Error("no PodDisruptionBudget")
	}
}

// The unit as systemd reads it; no systemd has run it here.
func TestSystemdUnit(t *testing.T) {
	unit := read(t, "systemd/flowgate.service")
	var environ []string
	for line := range strings.Lines(read(t, "systemd/flowgate.env")) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			environ = append(environ, line)
		}
	}
	cfg := load(t, "systemd/flowgate.env", environ)
	found := regexp.MustCompile(`(?m)^TimeoutStopSec=(\S+)$`).FindStringSubmatch(unit)
	if found == nil {
		t.Fatal("no TimeoutStopSec")
	}
	grace, err := time.ParseDuration(found[1])
	if err != nil {
		t.Fatal(err)
	}
	stopsIn(t, "systemd/flowgate.service", cfg, grace)
	if state := "/var/lib/flowgate"; cfg.DataDir != state || !strings.Contains(unit, "\nStateDirectory=flowgate\n") {
		t.Errorf("data in %s, the unit may write to %s", cfg.DataDir, state)
	}

	analyze := program(t, "systemd-analyze", "systemd")
	// A program that is there in place of ours.
	copied := filepath.Join(t.TempDir(), "flowgate.service")
	if err := os.WriteFile(copied, []byte(strings.Replace(unit, "/usr/local/bin/flowgate", "/bin/true", 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), analyze, "verify", "--man=no", copied).CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("systemd-analyze verify: %v\n%s", err, out)
	}
	// Exposure from 0 to 10, here in tenths; a service with nothing set has 96.
	if out, err := exec.CommandContext(t.Context(), analyze, "security", "--offline=true", "--threshold=20", "systemd/flowgate.service").CombinedOutput(); err != nil {
		t.Errorf("systemd-analyze security: %v\n%s", err, out)
	}
}

func TestKEDA(t *testing.T) {
	text := read(t, "keda/scaledobject.yaml")
	var o struct {
		Kind string
		Spec struct {
			Max      int `yaml:"maxReplicaCount"`
			Triggers []struct {
				Metadata struct{ Query, Threshold string }
			}
		}
	}
	if err := yaml.Unmarshal([]byte(text), &o); err != nil {
		t.Fatal(err)
	}
	if o.Kind != "ScaledObject" || o.Spec.Max == 0 || len(o.Spec.Triggers) != 1 || o.Spec.Triggers[0].Metadata.Threshold == "" {
		t.Fatalf("%+v", o)
	}
	if !strings.Contains(text, "do not scale writers") {
		t.Error("the warning is gone")
	}
}

// scaling is the query of the KEDA example.
func scaling(t *testing.T) query {
	t.Helper()
	found := regexp.MustCompile(`(?m)^ +query: (.+)$`).FindStringSubmatch(read(t, "keda/scaledobject.yaml"))
	if found == nil {
		t.Fatal("no query")
	}
	return query{"keda/scaledobject.yaml", found[1]}
}
