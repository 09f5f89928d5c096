// SPDX-License-Identifier: Apache-2.0

// Package deploy holds what installs the programs on hosts. The test keeps its
// files in step with the programs' flags.
package deploy

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	flagUse = regexp.MustCompile(`--[a-z][a-z-]*`)
	envUse  = regexp.MustCompile(`(?m)^#?(ERNIC_[A-Z_]+)=`)
)

func TestFiles_NameFlagsThatTheProgramsHave(t *testing.T) {
	for _, c := range []struct{ program, unit, env string }{
		{"ernic-manager", "systemd/ernic-manager.service", "env/manager.env"},
		{"ernic-worker", "systemd/ernic-worker@.service", "env/worker.env"},
	} {
		bin := filepath.Join(t.TempDir(), c.program)
		if out, err := exec.Command("go", "build", "-o", bin, "../cmd/"+c.program).CombinedOutput(); err != nil {
			t.Fatalf("build: %v\n%s", err, out)
		}
		help, err := exec.Command(bin, "--help").CombinedOutput()
		if err != nil {
			t.Fatalf("%s --help: %v", c.program, err)
		}
		known := map[string]bool{}
		for _, f := range flagUse.FindAllString(string(help), -1) {
			known[f] = true
		}
		var used []string
		unit := read(t, c.unit)
		for line := range strings.Lines(unit) {
			if strings.HasPrefix(line, "ExecStart=/usr/bin/"+c.program) {
				used = append(used, flagUse.FindAllString(line, -1)...)
			}
		}
		if !strings.Contains(unit, "ExecStart=/usr/bin/"+c.program) {
			t.Errorf("%s does not start %s", c.unit, c.program)
		}
		for _, m := range envUse.FindAllStringSubmatch(read(t, c.env), -1) {
			used = append(used, "--"+strings.ToLower(strings.ReplaceAll(strings.TrimPrefix(m[1], "ERNIC_"), "_", "-")))
		}
		if len(used) < 2 {
			t.Errorf("%s: found only %v", c.program, used)
		}
		for _, f := range used {
			if !known[f] {
				t.Errorf("%s has no flag %s", c.program, f)
			}
		}
	}
}

func read(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
