// SPDX-License-Identifier: Apache-2.0

// Package deploy holds what installs the programs on hosts. The tests keep its
// files, and the page of the programs' flags, in step with the programs.
package deploy

import (
	"debug/elf"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	flagUse  = regexp.MustCompile(`--[a-z][a-z-]*`)
	envUse   = regexp.MustCompile(`(?m)^#?(ERNIC_[A-Z_]+)=`)
	imageEnv = regexp.MustCompile(`(?m)^ENV (ERNIC_[A-Z_]+)=`)
)

// programs is the directory of the programs, built as "make build" does, so that
// the two share what is compiled.
var programs string

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "ernic-programs-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	c := exec.Command("go", "build", "-trimpath", "-o", dir, "../cmd/ernic-manager", "../cmd/ernic-worker", "../cmd/ernictl")
	c.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := c.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "build: %v\n%s", err, out)
		return 1
	}
	programs = dir
	return m.Run()
}

// flags returns the flags that a program has.
func flags(t *testing.T, name string) map[string]bool {
	t.Helper()
	help, err := exec.Command(filepath.Join(programs, name), "--help").CombinedOutput()
	if err != nil {
		t.Fatalf("%s --help: %v", name, err)
	}
	known := map[string]bool{}
	for _, f := range flagUse.FindAllString(string(help), -1) {
		known[f] = true
	}
	return known
}

// ofVariable is the flag that an environment variable stands for.
func ofVariable(name string) string {
	return "--" + strings.ToLower(strings.ReplaceAll(strings.TrimPrefix(name, "ERNIC_"), "_", "-"))
}

func TestFiles_NameFlagsThatTheProgramsHave(t *testing.T) {
	for _, c := range []struct{ program, unit, env string }{
		{"ernic-manager", "systemd/ernic-manager.service", "env/manager.env"},
		{"ernic-worker", "systemd/ernic-worker@.service", "env/worker.env"},
	} {
		known := flags(t, c.program)
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
			used = append(used, ofVariable(m[1]))
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

// docs/programs.md promises every flag.
func TestDocs_NameEveryFlagOfThePrograms(t *testing.T) {
	text := read(t, "../docs/programs.md")
	documented := map[string]bool{"--help": true}
	for _, f := range flagUse.FindAllString(text, -1) {
		documented[f] = true
	}
	for _, name := range []string{"ernic-manager", "ernic-worker", "ernictl"} {
		for f := range flags(t, name) {
			if !documented[f] {
				t.Errorf("docs/programs.md does not name %s of %s", f, name)
			}
		}
	}
}

// An image that has nothing but a program holds what "make build" leaves, and
// the program needs no library.
func TestContainers_HoldAProgramThatNeedsNothingElse(t *testing.T) {
	made := strings.Fields(regexp.MustCompile(`(?m)^\tCGO_ENABLED=0 go build .*$`).FindString(read(t, "../Makefile")))
	for file, name := range map[string]string{
		"container/manager.Containerfile": "ernic-manager", "container/worker.Containerfile": "ernic-worker", "container/ernictl.Containerfile": "ernictl",
	} {
		text := read(t, file)
		for _, line := range []string{"FROM scratch", "COPY bin/" + name + " /" + name, `ENTRYPOINT ["/` + name + `"]`} {
			if !slices.Contains(strings.Split(text, "\n"), line) {
				t.Errorf("%s has no line %q", file, line)
			}
		}
		if !slices.Contains(made, "./cmd/"+name) {
			t.Errorf("%s: \"make build\" does not make bin/%s, but %v", file, name, made)
		}
		known := flags(t, name)
		for _, m := range imageEnv.FindAllStringSubmatch(text, -1) {
			if f := ofVariable(m[1]); !known[f] {
				t.Errorf("%s: %s has no flag %s", file, name, f)
			}
		}
		if strings.Count(text, "ENV ") != len(imageEnv.FindAllString(text, -1)) {
			t.Errorf("%s sets variables that stand for no flag", file)
		}
		e, err := elf.Open(filepath.Join(programs, name))
		if err != nil {
			t.Fatal(err)
		}
		if libs, err := e.ImportedLibraries(); err != nil || len(libs) != 0 {
			t.Errorf("%s needs the libraries %v (%v)", name, libs, err)
		}
		for _, p := range e.Progs {
			if p.Type == elf.PT_INTERP {
				t.Errorf("%s needs a loader", name)
			}
		}
		if err := e.Close(); err != nil {
			t.Error(err)
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
