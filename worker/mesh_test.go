// SPDX-License-Identifier: Apache-2.0

package worker

import "testing"

func TestLocate_IsTheAddressOnTheWayToTheManager(t *testing.T) {
	for _, c := range []struct{ manager, listen, want string }{
		{"127.0.0.1:6320", "0.0.0.0:7000", "127.0.0.1:7000"},
		{"127.0.0.1:6320", "[::]:7001", "127.0.0.1:7001"},
		{"127.8.9.10:6320", "0.0.0.0:7000", "127.0.0.1:7000"},
		{"127.0.0.1:none", "0.0.0.0:7000", ""},
	} {
		m := &mesh{listen: c.listen}
		if !everywhere(c.listen) {
			t.Errorf("%s is taken for one address", c.listen)
		}
		if got := m.locate(c.manager); got != c.want {
			t.Errorf("listening on %s, manager at %s: %q, want %q", c.listen, c.manager, got, c.want)
		}
	}
	for _, listen := range []string{"127.0.0.1:7000", "[fd00::1]:7000", "host:7000", "nonsense"} {
		if everywhere(listen) {
			t.Errorf("%s is taken for all addresses", listen)
		}
	}
}
