// SPDX-License-Identifier: Apache-2.0

package toolout

import "testing"

func TestParseStats_ReadsSectionsAndFields(t *testing.T) {
	s := ParseStats("Instance\n--------\nname : vm1\ntime : 2026-01-02T03:04:05Z\n\nLIF Statistics\n--------------\nrx_ucast_bytes : 18446744073709551615\n")
	if s["Instance"]["name"] != "vm1" || s["Instance"]["time"] != "2026-01-02T03:04:05Z" {
		t.Errorf("%v", s)
	}
	if v, err := s.Number("LIF Statistics", "rx_ucast_bytes"); err != nil || v != 1<<64-1 {
		t.Errorf("%d, %v", v, err)
	}
	for _, name := range []string{"name", "missing"} {
		if _, err := s.Number("Instance", name); err == nil {
			t.Errorf("%s is a number", name)
		}
	}
}

func FuzzParseStats(f *testing.F) {
	f.Add("a\n-\nb : 1\n")
	f.Add("b : 1\n---\nc : 2\n-\n")
	f.Fuzz(func(_ *testing.T, text string) {
		s := ParseStats(text)
		_, _ = s.Number("a", "b")
	})
}
