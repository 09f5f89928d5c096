// SPDX-License-Identifier: Apache-2.0

package standby

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/ernic-dev/ernic/e2e/program"
	"github.com/ernic-dev/ernic/e2e/verdict"
)

func TestMain(m *testing.M) { os.Exit(program.Main(m, "ernic-manager", "ernic-worker", "ernictl")) }

// start starts one of the programs.
func start(t *verdict.T, name string, args ...string) *program.Process {
	t.Helper()
	return program.Start(t, name+" "+strings.Join(args, " "), append([]string{program.Path(name), "--log-format", "json"}, args...)...)
}

// ctl runs ernictl and returns what it printed, and what it complained of.
func ctl(args ...string) (out []byte, complaint string, err error) {
	var stdout, stderr bytes.Buffer
	cmd := exec.Command(program.Path("ernictl"), append([]string{"--timeout", "5s"}, args...)...)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err = cmd.Run()
	return stdout.Bytes(), stderr.String(), err
}

// ask runs ernictl and decodes its JSON. It returns false if the command fails, as it may while nobody leads.
func ask[T any](t *verdict.T, args ...string) (items []T, ok bool) {
	t.Helper()
	out, _, err := ctl(append(args, "-o", "json")...)
	if err != nil {
		return nil, false
	}
	if err := json.Unmarshal(out, &items); err != nil {
		t.Fatalf("ernictl %v: %v\n%s", args, err, out)
	}
	return items, true
}
