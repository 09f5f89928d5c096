// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"strings"
	"testing"
)

func TestTableSaysWhatIsBetterAndWhatIsUnknown(t *testing.T) {
	own := results{{Test: "a", Unit: "MiB/s", Median: 30}, {Test: "b", Unit: "us", Median: 10, LessIsBetter: true}, {Test: "c", Unit: "MiB/s"}}
	other := results{{Test: "a", Median: 10}, {Test: "b", Median: 25, LessIsBetter: true}, {Test: "c", Median: 7}}
	var out bytes.Buffer
	printTable(&out, []column{{"ernic", own}, {"other", other}})
	var got [][]string
	for line := range strings.Lines(out.String()) {
		got = append(got, strings.Fields(line))
	}
	for i, want := range []string{"TEST UNIT ernic other TIMES BETTER", "a MiB/s 30.0 10.0 3.0", "b us 10.0 25.0 2.5", "c MiB/s - 7.0 -"} {
		if i >= len(got) || strings.Join(got[i], " ") != want {
			t.Errorf("line %d is not %q:\n%s", i, want, out.String())
		}
	}
}
