// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"regexp"
	"slices"
	"strings"
)

// starvation is how a kernel starts to report that its processors stood still or
// were slow. It says that the machine below was busy, and nothing of a device.
var starvation = regexp.MustCompile(`soft lockup|workqueue lockup|\bhogged CPU for\b|\brcu: |\brcu_\w+ (kthread|detected|self-detected)|` +
	`Sending NMI from CPU|NMI backtrace for|Task dump for CPU|(?i:clocksource)|interrupt took|RT throttling|NOHZ tick-stop error`)

// logTime is the time in front of a line of dmesg, and the one blank behind it.
var logTime = regexp.MustCompile(`^\[[^\]]*\] ?`)

// Complaints returns the lines of a kernel's log (dmesg) that contain one of words
// and none of allowed. What the kernel says of a machine that gave it no time is
// apart from them in starved, by its headlines: the traces below name whatever
// happened to run, also drivers that did no wrong.
func Complaints(log string, words, allowed []string) (complaints, starved []string) {
	inTrace := false
	for line := range strings.Lines(log) {
		line = strings.TrimRight(line, "\n")
		text := logTime.ReplaceAllString(line, "")
		if starvation.MatchString(text) {
			starved = append(starved, line)
			inTrace = true
			continue
		}
		// Within such a trace a complaint is what starts a report of its own; the
		// lines of the trace are indented or start with the names of registers.
		starts := func(w string) bool { return w != "Call Trace" && strings.HasPrefix(text, w) }
		inTrace = inTrace && !slices.ContainsFunc(words, starts) && !starts("INFO: task")
		if inTrace {
			inTrace = !strings.Contains(text, "</TASK>")
			continue
		}
		has := func(w string) bool { return strings.Contains(text, w) }
		if slices.ContainsFunc(words, has) && !slices.ContainsFunc(allowed, has) {
			complaints = append(complaints, line)
		}
	}
	return complaints, starved
}

// DriverRemarks are parts of what the ionic drivers say at every start.
var DriverRemarks = []string{
	"taints kernel", "module verification failed", "NIC is not supporting vlan offload, likely in SmartNIC mode",
}

// EmulatorRace is what a kernel says at the start or when it loads a module, once
// in many boots, when one processor of software emulation still runs a breakpoint
// that another has replaced in the code (QEMU's thread=multi). Such a guest has to
// be booted again.
const EmulatorRace = "Oops: int3: 0000"
