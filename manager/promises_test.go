// SPDX-License-Identifier: Apache-2.0

package manager_test

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestEveryPromiseHasATest holds docs/promises.md against the tests that there are.
func TestEveryPromiseHasATest(t *testing.T) {
	list, err := os.ReadFile("../docs/promises.md")
	if err != nil {
		t.Fatal(err)
	}
	tests := map[string]bool{}
	declared := regexp.MustCompile(`(?m)^func (Test(?:[IHGPS]|Section)[0-9]+[a-z]?_\w+)\(`)
	err = filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		raw, err := os.ReadFile(path)
		for _, m := range declared.FindAllSubmatch(raw, -1) {
			tests[string(m[1])] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile("`(Test\\w+)`").FindAllStringSubmatch(string(list), -1) {
		if !tests[m[1]] {
			t.Errorf("docs/promises.md names %s, which is no test", m[1])
		}
	}
	for letter, last := range map[string]int{"I": 6, "H": 8, "G": 10, "P": 12, "S": 5} {
		for i := 1; i <= last; i++ {
			prove := regexp.MustCompile(fmt.Sprintf(`^Test%s%d[a-z]?_`, letter, i))
			found := false
			for name := range tests {
				found = found || prove.MatchString(name)
			}
			if !found {
				t.Errorf("nothing proves %s%d", letter, i)
			}
		}
	}
}
