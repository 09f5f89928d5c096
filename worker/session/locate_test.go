// SPDX-License-Identifier: Apache-2.0

package session_test

import (
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ernic-dev/ernic/manager"
	"github.com/ernic-dev/ernic/worker/session"
)

func TestH3_AWorkerWhoseAddressChangesStaysTheNodeItIs(t *testing.T) {
	bubble(t, func(t *testing.T) {
		m, _ := start(t, manager.Config{})
		var here atomic.Value
		here.Store("a.test:7000")
		w := startWorker(t, m, "w1", func(c *session.Config) {
			c.Addr, c.Locate = "", func(string) string { return here.Load().(string) }
		})
		settle()
		other := startWorker(t, m, "w2")
		w.claim("10.0.0.1")
		settle()
		want := func(addr string) {
			t.Helper()
			w.wantNode(1)
			other.wantRoute("10.0.0.1", 1)
			if n, ok := other.Node(1); !ok || n.Addr != addr || w.Addr() != addr {
				t.Errorf("the other worker sees %+v, the worker itself %s; want %s", n, w.Addr(), addr)
			}
		}
		want("a.test:7000")
		// What tells nothing changes nothing; see the log for what makes no sense.
		for _, next := range []string{"b.test:7000", "", "0.0.0.0:7000", "nonsense", "[fd00::1]:7000"} {
			before := w.Addr()
			here.Store(next)
			w.cable.Cut()
			time.Sleep(3 * interval)
			switch next {
			case "b.test:7000", "[fd00::1]:7000":
				want(next)
			default:
				want(before)
			}
		}
		for _, part := range []string{"0.0.0.0:7000", "nonsense", "[fd00::1]:7000"} {
			if !strings.Contains(w.log.String(), part) {
				t.Errorf("the log does not tell of %s:\n%s", part, w.log)
			}
		}
	})
}
