// SPDX-License-Identifier: Apache-2.0

package guesttest

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ernic-dev/ernic/e2e/conformance"
	"github.com/ernic-dev/ernic/e2e/guest/verbs"
	"github.com/ernic-dev/ernic/e2e/lab/guest"
)

// excused are tests of rdma-core's suite that fail whatever the device does,
// by class and a part of the name. text is a part of what they say.
var excused = []struct{ class, name, text, reason string }{
	{
		"test_buf.", "", "Failed to allocate Parent Domain. Errno: 22",
		"libionic (ionic_alloc_parent_domain) knows no parent domain for confidential guests and refuses it by EINVAL in user space, " +
			"before kernel or device hear of it; the suite skips for EOPNOTSUPP, ENOENT and ENODEV only",
	},
	{
		"test_qp.QPTest", "test_create_ud_qp_with_privileged_qkey", "Errno: 1",
		"the ionic_rdma driver (ionic_check_modify_qp) refuses every user's queue pair a privileged Q_Key by EPERM before it asks the device; " +
			"the suite expects CAP_NET_RAW to be enough",
	},
}

// briefModules are those of the short tier: what the device has a part in.
const briefModules = "test_addr test_atomic test_cq test_cq_events test_device test_mr test_parent_domain test_pd test_qp test_rdmacm"

// suiteVerdict is a line of suite.py.
type suiteVerdict struct {
	Class, Name, Verdict, Text string
	Seconds                    float64
}

func TestRDMACore(t *testing.T) {
	g := two.Nodes[0].Guest
	upload(t, g, verbs.Files(), verbsDir)
	if !*long {
		runSuite(t, "rdma-core Python suite, brief", briefModules)
		return
	}
	must(t, g, "echo 40 >/proc/sys/vm/nr_hugepages")
	defer must(t, g, "echo 0 >/proc/sys/vm/nr_hugepages")
	runSuite(t, "rdma-core Python suite, released provider", "")
	runSuite(t, "rdma-core Python suite, patched provider", "", guest.PatchedProvider)
}

// runSuite runs rdma-core's suite in the first guest: its tests connect the
// device to itself. Each class is a subtest.
func runSuite(t *testing.T, group, modules string, env ...string) {
	found.Renew(group)
	var list []suiteVerdict
	cmd := guest.Shellf("cd %s && exec python3 suite.py %s ionic_0 %s", verbsDir, guest.RDMACoreTests, modules).With(env...)
	r, err := follow(t, two.Nodes[0].Guest, cmd, 5*time.Minute, func(line string) {
		var v suiteVerdict
		if err := json.Unmarshal([]byte(line), &v); err != nil {
			t.Errorf("no verdict: %q", line)
			return
		}
		list = append(list, v)
	})
	if err != nil {
		t.Errorf("%v\n%s", err, r.Stderr)
	}
	classes := map[string][]suiteVerdict{}
	for _, v := range list {
		classes[v.Class] = append(classes[v.Class], v)
	}
	if len(classes) == 0 {
		t.Fatal("no test ran")
	}
	met := map[string]int{}
	t.Run(group, func(t *testing.T) {
		for _, class := range slices.Sorted(maps.Keys(classes)) {
			t.Run(class, func(t *testing.T) { judgeClass(t, group, class, classes[class], met) })
		}
	})
	for _, reason := range slices.Sorted(maps.Keys(met)) {
		found.Remark(group, fmt.Sprintf("%d fail for a reason that is not the device's: %s.", met[reason], reason))
	}
	if err := keepResults(); err != nil {
		t.Error(err)
	}
}

// judgeClass enters a class of the suite into the report and fails for each of
// its tests that failed without excuse.
func judgeClass(t *testing.T, group, class string, list []suiteVerdict, met map[string]int) {
	count, skips := map[string]int{}, map[string]int{}
	var took float64
	for _, v := range list {
		took += v.Seconds
		switch v.Verdict {
		case "skip":
			skips[oneLine(v.Text)]++
		case "fail":
			if reason := excuse(v); reason != "" {
				v.Verdict = "excused"
				met[reason]++
			} else {
				t.Errorf("%s: %s", v.Name, v.Text)
			}
		}
		count[v.Verdict]++
	}
	var note []string
	for _, what := range []string{"pass", "skip", "excused", "fail"} {
		if count[what] > 0 {
			note = append(note, fmt.Sprintf("%d %s", count[what], what))
		}
	}
	text := strings.Join(note, ", ")
	if len(skips) > 0 {
		var why []string
		for _, s := range slices.Sorted(maps.Keys(skips)) {
			why = append(why, fmt.Sprintf("%s (%d)", s, skips[s]))
		}
		text += "; skipped: " + strings.Join(why, "; ")
	}
	found.Add(conformance.Result{
		Group: group, Name: class, Failed: count["fail"] > 0, Skipped: count["pass"] == 0 && count["fail"] == 0,
		Note: text, Took: time.Duration(took * float64(time.Second)),
	})
}

func excuse(v suiteVerdict) string {
	for _, e := range excused {
		if strings.HasPrefix(v.Class, e.class) && strings.Contains(v.Name, e.name) && strings.Contains(v.Text, e.text) {
			return e.reason
		}
	}
	return ""
}
