package deploytest

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/pillarbox-dev/pillarbox/internal/cli"
	"github.com/pillarbox-dev/pillarbox/internal/config"
)

// understood tells whether pillarbox understands a command line. It is not run: --help comes last, after everything was parsed.
func understood(t *testing.T, where string, args ...string) {
	t.Helper()
	var out, errOut bytes.Buffer
	if code := cli.Run(append(slices.Clone(args), "--help"), &out, &errOut); code != 0 {
		t.Errorf("%s: pillarbox %s: %s", where, strings.Join(args, " "), errOut.String())
	}
	if !strings.Contains(out.String(), "pillarbox "+args[0]) {
		t.Errorf("%s: pillarbox has no command %s", where, args[0])
	}
}

func TestUnderstood(t *testing.T) {
	understood(t, "a command that there is", "run", "-c", "x", "--log-format", "json")
	var out, errOut bytes.Buffer
	if code := cli.Run([]string{"run", "--no-such-flag", "--help"}, &out, &errOut); code == 0 {
		t.Error("a flag that there is not was understood")
	}
}

// unit returns the lines of a systemd unit, key → values, by section.
func unit(t *testing.T, name string) map[string]map[string][]string {
	t.Helper()
	file, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	all, section := map[string]map[string][]string{}, ""
	for lines := bufio.NewScanner(file); lines.Scan(); {
		line := strings.TrimSpace(lines.Text())
		switch key, value, ok := strings.Cut(line, "="); {
		case line == "" || line[0] == '#':
		case line[0] == '[':
			section = strings.Trim(line, "[]")
			all[section] = map[string][]string{}
		case !ok || section == "":
			t.Errorf("%s: %q is no setting", name, line)
		default:
			all[section][key] = append(all[section][key], value)
		}
	}
	return all
}

func TestSystemdUnit(t *testing.T) {
	u := unit(t, deploy+"systemd/pillarbox.service")
	service := u["Service"]
	if len(service["ExecStart"]) != 1 || len(u["Unit"]["Description"]) != 1 || len(u["Install"]["WantedBy"]) != 1 {
		t.Fatalf("unit = %v", u)
	}
	words := strings.Fields(service["ExecStart"][0])
	if path.Base(words[0]) != "pillarbox" {
		t.Errorf("it starts %s", words[0])
	}
	understood(t, "ExecStart", words[1:]...)
	for key, want := range map[string]string{
		"NoNewPrivileges": "yes", "ProtectSystem": "strict", "ProtectHome": "yes", "PrivateDevices": "yes", "CapabilityBoundingSet": "",
		"Restart": "always",
	} {
		if got := service[key]; len(got) != 1 || got[0] != want {
			t.Errorf("%s = %q, want %q", key, got, want)
		}
	}
}

// object is a manifest, as far as it is looked at.
type object struct {
	APIVersion string `yaml:"apiVersion"`
	Kind       string `yaml:"kind"`
	Metadata   struct {
		Name   string            `yaml:"name"`
		Labels map[string]string `yaml:"labels"`
	} `yaml:"metadata"`
	Data      map[string]string `yaml:"data"`
	Resources []string          `yaml:"resources"`
	Spec      struct {
		Replicas     int       `yaml:"replicas"`
		MinAvailable int       `yaml:"minAvailable"`
		Selector     yaml.Node `yaml:"selector"`
		Template     struct {
			Metadata struct {
				Labels map[string]string `yaml:"labels"`
			} `yaml:"metadata"`
			Spec pod `yaml:"spec"`
		} `yaml:"template"`
		Ports []struct {
			Name       string `yaml:"name"`
			TargetPort string `yaml:"targetPort"`
		} `yaml:"ports"`
		Endpoints []struct {
			Port string `yaml:"port"`
			Path string `yaml:"path"`
		} `yaml:"endpoints"`
	} `yaml:"spec"`
}

type pod struct {
	AutomountServiceAccountToken bool        `yaml:"automountServiceAccountToken"`
	Containers                   []container `yaml:"containers"`
	Volumes                      []struct {
		Name      string `yaml:"name"`
		ConfigMap struct {
			Name string `yaml:"name"`
		} `yaml:"configMap"`
	} `yaml:"volumes"`
}

type container struct {
	Command, Args []string
	Env           []struct {
		Name  string `yaml:"name"`
		Value string `yaml:"value"`
	} `yaml:"env"`
	Ports []struct {
		Name          string `yaml:"name"`
		ContainerPort int    `yaml:"containerPort"`
	} `yaml:"ports"`
	StartupProbe    probe `yaml:"startupProbe"`
	LivenessProbe   probe `yaml:"livenessProbe"`
	ReadinessProbe  probe `yaml:"readinessProbe"`
	SecurityContext struct {
		ReadOnlyRootFilesystem   bool `yaml:"readOnlyRootFilesystem"`
		AllowPrivilegeEscalation bool `yaml:"allowPrivilegeEscalation"`
	} `yaml:"securityContext"`
	VolumeMounts []struct {
		Name      string `yaml:"name"`
		MountPath string `yaml:"mountPath"`
	} `yaml:"volumeMounts"`
}

type probe struct {
	HTTPGet struct {
		Path string `yaml:"path"`
		Port string `yaml:"port"`
	} `yaml:"httpGet"`
}

// manifests returns the objects by their kind. Each file has one.
func manifests(t *testing.T) map[string]object {
	t.Helper()
	files, err := filepath.Glob(deploy + "kubernetes/*.yaml")
	if err != nil || len(files) < 6 {
		t.Fatalf("manifests: %q, %v", files, err)
	}
	all := map[string]object{}
	for _, name := range files {
		file, err := os.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		decoder := yaml.NewDecoder(file)
		var o, second object
		if err := decoder.Decode(&o); err != nil || o.APIVersion == "" || o.Kind == "" {
			t.Errorf("%s: kind %q of %q, %v", name, o.Kind, o.APIVersion, err)
		}
		if err := decoder.Decode(&second); !errors.Is(err, io.EOF) {
			t.Errorf("%s holds more than one object: %v", name, err)
		}
		all[o.Kind] = o
	}
	return all
}

func TestKubernetes(t *testing.T) {
	all := manifests(t)
	relay := all["Deployment"]
	if relay.Spec.Replicas != 2 || all["PodDisruptionBudget"].Spec.MinAvailable != 1 {
		t.Errorf("%d replicas, of which %d stay, want 2 and 1", relay.Spec.Replicas, all["PodDisruptionBudget"].Spec.MinAvailable)
	}
	labels := relay.Spec.Template.Metadata.Labels
	for kind, field := range map[string]string{"Deployment": "matchLabels", "PodDisruptionBudget": "matchLabels", "Service": "", "ServiceMonitor": "matchLabels"} {
		selector := map[string]string{}
		nested := map[string]map[string]string{}
		selected, o := labels, all[kind]
		err := o.Spec.Selector.Decode(&selector)
		if field != "" {
			err = o.Spec.Selector.Decode(&nested)
			selector = nested[field]
		}
		if kind == "ServiceMonitor" {
			selected = all["Service"].Metadata.Labels
		}
		if err != nil || len(selector) == 0 || !includes(selected, selector) {
			t.Errorf("%s selects %v of %v: %v", kind, selector, selected, err)
		}
	}
	one := relay.Spec.Template.Spec.Containers[0]
	port := one.Ports[0]
	for path, p := range map[string]probe{"/healthz": one.LivenessProbe, "/healthz ": one.StartupProbe, "/readyz": one.ReadinessProbe} {
		if p.HTTPGet.Path != strings.TrimSpace(path) || p.HTTPGet.Port != port.Name {
			t.Errorf("a probe asks %s of port %s, want %s of %s", p.HTTPGet.Path, p.HTTPGet.Port, path, port.Name)
		}
	}
	service := all["Service"].Spec.Ports[0]
	if e := all["ServiceMonitor"].Spec.Endpoints[0]; service.TargetPort != port.Name || e.Port != service.Name || e.Path != "/metrics" {
		t.Errorf("scraped is %s of port %s, and the service leads from %s to %s", e.Path, e.Port, service.Name, service.TargetPort)
	}
	for _, file := range all["Kustomization"].Resources {
		if _, err := os.Stat(deploy + "kubernetes/" + file); err != nil {
			t.Error(err)
		}
	}
	for _, kind := range []string{"Deployment", "Job"} {
		checkPod(t, kind, all[kind].Spec.Template.Spec, all["ConfigMap"])
	}
}

// checkPod looks at the command, at what the container may, and at the configuration, whose files have to be mounted.
func checkPod(t *testing.T, kind string, p pod, configMap object) {
	t.Helper()
	one := p.Containers[0]
	if len(one.Command) != 1 || one.Command[0] != "pillarbox" {
		t.Errorf("%s runs %q", kind, one.Command)
	}
	understood(t, kind, one.Args...)
	if p.AutomountServiceAccountToken || !one.SecurityContext.ReadOnlyRootFilesystem || one.SecurityContext.AllowPrivilegeEscalation {
		t.Errorf("%s may more than it needs: %+v", kind, one.SecurityContext)
	}
	mounted := map[string]string{}
	for _, m := range one.VolumeMounts {
		mounted[m.Name] = m.MountPath
	}
	for _, v := range p.Volumes {
		if _, there := mounted[v.Name]; !there {
			t.Errorf("%s does not mount the volume %s", kind, v.Name)
		}
		if v.ConfigMap.Name != "" && v.ConfigMap.Name != configMap.Metadata.Name {
			t.Errorf("%s mounts the ConfigMap %s, which is called %s", kind, v.ConfigMap.Name, configMap.Metadata.Name)
		}
	}
	env := map[string]string{"POD_NAME": "pillarbox-0"}
	for _, e := range one.Env {
		if e.Value != "" {
			env[e.Name] = e.Value
		}
	}
	for name, text := range configMap.Data {
		if !slices.Contains(one.Args, path.Join(mounted["config"], name)) {
			t.Errorf("%s is called with %q, and the configuration is %s", kind, one.Args, name)
		}
		c, err := config.Parse(name, []byte(text), func(name string) (string, bool) { value, set := env[name]; return value, set })
		if err != nil {
			t.Errorf("%s: %v", kind, err)
			continue
		}
		for _, file := range []string{c.Database.PasswordFile, c.Dashboard.Tokens[0].File, c.Destinations["suppliers"].HTTP.Signature.SecretFile} {
			if path.Dir(file) != mounted["secrets"] {
				t.Errorf("%s: %s is not where the secrets are mounted", kind, file)
			}
		}
		if _, port, _ := strings.Cut(c.Listen, ":"); kind == "Deployment" && port != fmt.Sprint(one.Ports[0].ContainerPort) {
			t.Errorf("it listens on %s, and the port is %d", c.Listen, one.Ports[0].ContainerPort)
		}
	}
}

func includes(all, some map[string]string) bool {
	merged := maps.Clone(all)
	maps.Copy(merged, some)
	return maps.Equal(merged, all)
}
