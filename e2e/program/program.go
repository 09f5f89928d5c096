// SPDX-License-Identifier: Apache-2.0

// Package program runs the programs of this project for tests: those that were built, or that it builds itself.
package program

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/ernic-dev/ernic/e2e/verdict"
)

// bin is the directory with the programs.
var bin = flag.String("bin", "", "directory with the built programs (make build); default: they are built")

// Path returns where a program is.
func Path(name string) string { return filepath.Join(*bin, name) }

// Main runs the tests of a package that needs some programs, and returns the exit status. The last lines are the reasons of
// what failed.
func Main(m *testing.M, names ...string) int {
	flag.Parse()
	if *bin == "" {
		dir, err := build(names)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer func() { _ = os.RemoveAll(dir) }()
		*bin = dir
	}
	code := m.Run()
	verdict.Summarize(os.Stderr)
	return code
}

// build builds programs into a new directory.
func build(names []string) (dir string, err error) {
	if dir, err = os.MkdirTemp("", "ernic-programs-"); err != nil {
		return "", err
	}
	args := []string{"build", "-o", dir}
	for _, name := range names {
		args = append(args, "github.com/ernic-dev/ernic/cmd/"+name)
	}
	if out, err := exec.Command("go", args...).CombinedOutput(); err != nil {
		_ = os.RemoveAll(dir)
		return "", fmt.Errorf("go build: %w: %s", err, out)
	}
	return dir, nil
}
