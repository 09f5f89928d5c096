// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"slices"
	"strings"
	"testing"
)

var (
	testWords   = []string{"ionic", "eth0", "BUG", "WARNING", "Call Trace", "NETDEV WATCHDOG", "blocked for more than"}
	testAllowed = []string{"taints kernel"}
)

const softLockup = `[   61.100000] watchdog: BUG: soft lockup - CPU#1 stuck for 26s! [kworker/1:2:77]
[   61.100001] Modules linked in: ionic_rdma(O) ionic ib_core
[   61.100002] CPU: 1 UID: 0 PID: 77 Comm: kworker/1:2 Tainted: G           O        7.2.13
[   61.100003] Workqueue: events ionic_lif_deferred_work [ionic]
[   61.100004] RIP: 0010:ionic_dev_cmd_wait+0x10/0x20 [ionic]
[   61.100005] Call Trace:
[   61.100006]  <TASK>
[   61.100007]  ? ionic_napi+0x1/0x2 [ionic]
[   61.100008]  </TASK>
`

const stall = `[   70.000000] rcu: INFO: rcu_preempt detected stalls on CPUs/tasks:
[   70.000001] rcu: 	1-...!: (0 ticks this GP) idle=1234
[   70.000002] Sending NMI from CPU 0 to CPUs 1:
[   70.000003] NMI backtrace for cpu 1 skipped: idling at ionic_poll+0x1/0x2
[   70.000004] Call Trace:
[   70.000005]  ionic_rx_service+0x1/0x2 [ionic]
`

func TestComplaintsAreOfDevicesNotOfAStarvedMachine(t *testing.T) {
	const (
		timeout = "[   80.000000] ionic 0000:01:00.0: DEVCMD NOP (0) timeout after 10 secs\n"
		warning = "[   80.000001] WARNING: CPU: 0 PID: 1 at net/core/dev.c:1 ionic_stop+0x1/0x2\n"
		taint   = "[    2.000000] ionic_rdma: loading out-of-tree module taints kernel.\n"
		other   = "[   80.000002] br0: port 1(eth0) has bad things\n"
		hung    = "[   80.000003] INFO: task kworker/0:1:9 blocked for more than 120 seconds.\n"
		hogged  = "[   12.000000] workqueue: ionic_lif_deferred_work [ionic] hogged CPU for >10000us 4 times, consider switching to WQ_UNBOUND\n"
		clock   = "[   12.000001] clocksource: timekeeping watchdog on CPU0: Marking clocksource 'tsc' as unstable because the skew is too large:\n"
	)
	for name, c := range map[string]struct {
		log     string
		want    []string
		starved int
	}{
		"a quiet kernel":                     {"", nil, 0},
		"what it says at every start":        {taint, nil, 0},
		"a command that times out":           {timeout, []string{timeout}, 0},
		"a warning":                          {warning, []string{warning}, 0},
		"a processor that stood still":       {softLockup, nil, 1},
		"tasks that did not run":             {stall, nil, 4},
		"slow work and clocks":               {hogged + clock, nil, 2},
		"a complaint behind a trace":         {softLockup + other, []string{other}, 1},
		"a complaint behind an open trace":   {stall + timeout + other, []string{timeout, other}, 4},
		"a task that hangs behind a trace":   {stall + hung, []string{hung}, 4},
		"a warning in the middle of a trace": {stall + warning, []string{warning}, 4},
	} {
		got, starved := Complaints(c.log, testWords, testAllowed)
		var want []string
		for _, w := range c.want {
			want = append(want, strings.TrimSuffix(w, "\n"))
		}
		if !slices.Equal(got, want) || len(starved) != c.starved {
			t.Errorf("%s: complaints %q, want %q; starved %q, want %d", name, got, want, starved, c.starved)
		}
	}
}

func FuzzComplaints(f *testing.F) {
	f.Add(softLockup + stall)
	f.Add("[x] BUG: no time\n[\n]ionic")
	f.Fuzz(func(t *testing.T, log string) {
		got, starved := Complaints(log, testWords, testAllowed)
		for _, line := range append(got, starved...) {
			if !strings.Contains(log, line) {
				t.Errorf("%q is no line of the log", line)
			}
		}
	})
}
