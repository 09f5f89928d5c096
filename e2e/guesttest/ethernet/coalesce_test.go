// SPDX-License-Identifier: Apache-2.0

package ethernet

import (
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ernic-dev/ernic/e2e/site"
)

// longest is the longest interval that the driver takes for the interrupts of a
// queue, in microseconds, and what the NIC makes of it.
const (
	longest     = "4063"
	longestTime = 63 * 64 * time.Microsecond
)

// coalescing lets the guest ask for few interrupts: under a flood no vector has more
// than one in each interval, and nothing is lost.
func coalescing(t *testing.T, s *site.Site) {
	n, peer := s.Nodes[0], s.Nodes[1]
	defer must(t, n.Guest, "ethtool -C eth0 rx-usecs 64")
	flood, err := peer.Guest.Start(t.Context(), shell("exec ping -q -f -w 600 -s 1000 %s", n.IP))
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = flood.Signal(syscall.SIGTERM)
		_, _ = flood.Wait()
	}()
	for _, usecs := range []string{"64", longest} {
		must(t, n.Guest, "ethtool -C eth0 rx-usecs %s; sleep 0.1", usecs)
		begun := time.Now()
		before := interrupts(t, n)
		must(t, n.Guest, "sleep 3")
		after := interrupts(t, n)
		took := time.Since(begun)
		most := 0
		for vector, count := range after {
			most = max(most, count-before[vector])
		}
		t.Logf("rx-usecs %s: up to %d interrupts of a vector in %v", usecs, most, took.Round(time.Millisecond))
		if most < 10 {
			t.Errorf("rx-usecs %s: %d interrupts of a vector under a flood", usecs, most)
		}
		if limit := int(took/longestTime) + 2; usecs == longest && most > limit {
			t.Errorf("rx-usecs %s: %d interrupts of a vector in %v, want no more than %d", usecs, most, took, limit)
		}
	}
	ping(t, n, peer.IP, "")
	ping(t, peer, n.IP, "-s 8000")
	transfer(t, s, n.IP)
}

// interrupts counts those of each vector of the guest's netdev.
func interrupts(t *testing.T, n *site.Node) map[string]int {
	t.Helper()
	counts := map[string]int{}
	for line := range strings.Lines(must(t, n.Guest, "grep eth0 /proc/interrupts")) {
		fields := strings.Fields(line)
		for _, f := range fields[1:] { // one for each processor
			count, err := strconv.Atoi(f)
			if err != nil {
				break
			}
			counts[fields[len(fields)-1]] += count
		}
	}
	return counts
}
