// SPDX-License-Identifier: Apache-2.0

package rdma_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// docs/regressions.md sends a contributor to tests by name: they exist.
func TestRegressions_TheListNamesRealTests(t *testing.T) {
	const root = "../../.."
	list, err := os.ReadFile(root + "/docs/regressions.md")
	if err != nil {
		t.Fatal(err)
	}
	var sources strings.Builder
	for _, dir := range []string{"device", "fabric", "e2e/inproc"} {
		err := filepath.WalkDir(filepath.Join(root, dir), func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(path, "_test.go") {
				return err
			}
			b, err := os.ReadFile(path)
			sources.Write(b)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	names := regexp.MustCompile("`((?:Test|Fuzz)[A-Za-z0-9_]+)`").FindAllStringSubmatch(string(list), -1)
	if len(names) < 50 {
		t.Errorf("the list names %d tests", len(names))
	}
	for _, n := range names {
		if !strings.Contains(sources.String(), "func "+n[1]+"(") {
			t.Errorf("docs/regressions.md names %s, which is no test", n[1])
		}
	}
}
