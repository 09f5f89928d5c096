// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ernic-dev/ernic/e2e/lab/image"
)

func testConfig() Config {
	return Config{Dir: "/run/x", Name: "g1", Artifacts: &image.Artifacts{
		Kernel: "/c/image/vmlinuz", Disk: "/c/image/guest.img", Initramfs: "/c/boot/initramfs", Unpacked: "/c/boot/vmlinux"}}
}

// commandLine returns the arguments and the mounts of a valid configuration.
func commandLine(t *testing.T, c Config) *command {
	t.Helper()
	c, err := c.withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	q, err := c.commandLine()
	if err != nil {
		t.Fatal(err)
	}
	return q
}

// option returns the argument behind each occurrence of an option.
func option(q *command, name string) (values []string) {
	for i, a := range q.args[:len(q.args)-1] {
		if a == name {
			values = append(values, q.args[i+1])
		}
	}
	return values
}

func TestGuestHasWhatTheDriverNeeds(t *testing.T) {
	q := commandLine(t, testConfig())
	if got := option(q, "-smp"); !slices.Equal(got, []string{"4"}) {
		t.Errorf("processors: %v, the RDMA driver needs 4", got)
	}
	if got := option(q, "-object"); len(got) != 1 || !strings.Contains(got[0], "share=on") || !strings.Contains(got[0], "size=1024M") {
		t.Errorf("memory: %v, a vfio-user server needs it shared", got)
	}
	if got := option(q, "-drive"); len(got) != 1 || !strings.Contains(got[0], "snapshot=on") {
		t.Errorf("disk: %v, it must never be written to", got)
	}
	if got := option(q, "-accel"); !slices.Equal(got, []string{"tcg,thread=multi"}) {
		t.Errorf("accelerator: %v", got)
	}
	c := testConfig()
	c.Accel = KVM
	if q := commandLine(t, c); !slices.Equal(option(q, "-accel"), []string{"kvm"}) || !slices.Equal(option(q, "-cpu"), []string{"host"}) {
		t.Errorf("under KVM: %v %v", option(q, "-accel"), option(q, "-cpu"))
	}
}

func TestSparePortsComeAfterTheCards(t *testing.T) {
	c := testConfig()
	c.Devices = []Device{{Socket: "/run/x/w1.sock"}}
	c.SparePorts = 2
	var ports []string
	for _, d := range option(commandLine(t, c), "-device") {
		if strings.HasPrefix(d, "pcie-root-port") {
			ports = append(ports, d)
		}
	}
	want := []string{"pcie-root-port,id=port0,slot=1", "pcie-root-port,id=spare0,slot=2,mem-reserve=16M", "pcie-root-port,id=spare1,slot=3,mem-reserve=16M"}
	if !slices.Equal(ports, want) {
		t.Errorf("root ports %v, want %v", ports, want)
	}
}

// What QEMU does not see it cannot plug in.
func TestHotPlugNeedsASocketThatQEMUSees(t *testing.T) {
	g := &Guest{cfg: testConfig(), mounts: []mount{{"/run/x", "/lab/3"}}}
	if got, err := g.inside("/run/x/w2.sock"); err != nil || got != "/lab/3/w2.sock" {
		t.Errorf("%q, %v", got, err)
	}
	if _, err := g.inside("/run/y/w2.sock"); err == nil || !strings.Contains(err.Error(), "/run/y/w2.sock") {
		t.Errorf("a socket elsewhere: %v", err)
	}
}

func TestHostPathsBecomeMounts(t *testing.T) {
	c := testConfig()
	c.Devices = []Device{{Socket: "/run/x/w1.sock"}, {Socket: "/srv/other/w2.sock", OnRootComplex: true, Properties: map[string]any{"x-msg-timeout": 9}}}
	q := commandLine(t, c)
	inside := map[string]string{}
	for _, m := range q.mounts {
		if _, twice := inside[m.host]; twice {
			t.Errorf("%s is mounted twice", m.host)
		}
		inside[m.host] = m.inside
	}
	for _, dir := range []string{"/c/image", "/c/boot", "/run/x", "/srv/other"} {
		if inside[dir] == "" {
			t.Errorf("%s is not mounted: %v", dir, q.mounts)
		}
	}
	for _, a := range q.args {
		for _, host := range []string{"/c/", "/run/x", "/srv"} {
			if strings.Contains(a, host) {
				t.Errorf("%q names a path that QEMU does not have", a)
			}
		}
	}
	var nics []map[string]any
	for _, d := range option(q, "-device") {
		var m map[string]any
		if json.Unmarshal([]byte(d), &m) == nil && m["driver"] == "vfio-user-pci" {
			nics = append(nics, m)
		}
	}
	if len(nics) != 2 {
		t.Fatalf("%d vfio-user devices in %q", len(nics), q.args)
	}
	if nics[0]["bus"] != "port0" || nics[0]["socket"].(map[string]any)["path"] != inside["/run/x"]+"/w1.sock" {
		t.Errorf("first device: %v", nics[0])
	}
	if nics[1]["bus"] != nil || nics[1]["x-msg-timeout"] != 9.0 || nics[1]["socket"].(map[string]any)["path"] != inside["/srv/other"]+"/w2.sock" {
		t.Errorf("second device: %v", nics[1])
	}
}

func TestCableHasOneListener(t *testing.T) {
	netdev := func(l Link) (m map[string]any) {
		c := testConfig()
		c.Links = []Link{l}
		v := option(commandLine(t, c), "-netdev")
		if len(v) != 1 || json.Unmarshal([]byte(v[0]), &m) != nil {
			t.Fatalf("netdev %q", v)
		}
		return m
	}
	a, b := netdev(Link{Socket: "/run/x/c", Listen: true}), netdev(Link{Socket: "/run/x/c"})
	if a["server"] != true || b["server"] != false || b["reconnect-ms"] == nil || a["reconnect-ms"] != nil {
		t.Errorf("listener %v, other end %v", a, b)
	}
}

func TestBadConfigurationIsNamed(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*Config)
		want   string
	}{
		"name":            {func(c *Config) { c.Name = "a,b" }, `"a,b"`},
		"no name":         {func(c *Config) { c.Name = "" }, "name"},
		"accelerator":     {func(c *Config) { c.Accel = "xen" }, "xen"},
		"artifacts":       {func(c *Config) { c.Artifacts = nil }, "artifacts"},
		"memory":          {func(c *Config) { c.Memory = 1 }, "1 MiB"},
		"processors":      {func(c *Config) { c.VCPUs = -1 }, "-1 processors"},
		"relative socket": {func(c *Config) { c.Devices = []Device{{Socket: "w.sock"}} }, "absolute"},
		"long socket":     {func(c *Config) { c.Devices = []Device{{Socket: "/" + strings.Repeat("s", 107)}} }, "108 bytes"},
		"long directory":  {func(c *Config) { c.Dir = "/" + strings.Repeat("d", 100) }, "107"},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := testConfig()
			c.change(&cfg)
			if _, err := cfg.withDefaults(); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want an error with %q", err, c.want)
			}
		})
	}
}

func TestCommandSaysWhatItRuns(t *testing.T) {
	c := Shellf("echo %d", 7).With("A=1", "B=2")
	if got := c.String(); got != "A=1 B=2 echo 7" {
		t.Errorf("got %q", got)
	}
	err := &ExitError{Cmd: c, Result: Result{Code: 3, Stdout: strings.Repeat("line\n", 100), Stderr: "bad\n"}}
	if s := err.Error(); !strings.Contains(s, "exit status 3") || !strings.Contains(s, "stderr:\nbad") || strings.Count(s, "line\n") > 41 {
		t.Errorf("got %q", s)
	}
}

func TestTSC_IsMeasuredTheSameTwice(t *testing.T) {
	a, b := measureTSC(20*time.Millisecond), measureTSC(20*time.Millisecond)
	if a == 0 || max(a, b)-min(a, b) > a/500 {
		t.Errorf("measured %d kHz and %d kHz", a, b)
	}
	words := strings.Join(option(commandLine(t, testConfig()), "-append"), " ")
	if !strings.Contains(words, fmt.Sprintf(" tsc_early_khz=%d ", tscKHz())) {
		t.Errorf("an emulated guest is told %q", words)
	}
}
