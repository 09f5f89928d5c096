// SPDX-License-Identifier: Apache-2.0

package fabric

import (
	"strings"
	"testing"
)

func TestGroup_SpreadsQueuePairNumbers(t *testing.T) {
	for name, flow := range map[string]func(i uint32) uint32{
		"dense":               func(i uint32) uint32 { return i },
		"multiples of 2":      func(i uint32) uint32 { return 2 * i },
		"multiples of 256":    func(i uint32) uint32 { return i << 8 },
		"high bits":           func(i uint32) uint32 { return i << 14 },
		"offset and multiple": func(i uint32) uint32 { return 1000 + 16*i },
	} {
		var count [Groups]int
		for i := range uint32(1024) {
			count[Group(flow(i))]++
		}
		used, most := 0, 0
		for _, n := range count {
			if n > 0 {
				used++
			}
			most = max(most, n)
		}
		if used < 200 || most > 16 {
			t.Errorf("%s: 1024 flows use %d groups, up to %d in one", name, used, most)
		}
	}
}

func TestCheck_NamesWhatIsOutOfRange(t *testing.T) {
	for want, f := range map[string]Frame{
		"":                 {Header: make([]byte, MaxHeader), Payload: make([]byte, MaxChunk)},
		"class 4":          {Class: Classes},
		"header of 257":    {Header: make([]byte, MaxHeader+1)},
		"payload of 26214": {Payload: make([]byte, MaxChunk+1)},
	} {
		err := f.Check()
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", want, err)
		}
	}
}

func TestNames_AreStableAndComplete(t *testing.T) {
	var s PeerStats
	names := map[string]bool{}
	s.Each(func(name string, _ uint64) {
		if names[name] || strings.Contains(name, "(") || strings.ToLower(name) != name {
			t.Errorf("counter %q", name)
		}
		names[name] = true
	})
	for _, want := range []string{"tx_frames", "rx_bytes", "drop_queue_full", "drop_bad_source", "reconnects", "rtt_ns"} {
		if !names[want] {
			t.Errorf("no counter %q", want)
		}
	}
	for c := range Class(Classes) {
		if strings.Contains(c.String(), "(") {
			t.Errorf("class %d has no name", c)
		}
	}
	if !strings.Contains(Class(Classes).String(), "(") || !strings.Contains(Verdict(9).String(), "(") || PeerBackoff.String() != "backoff" {
		t.Error("unknown values have names, or known ones have not")
	}
}
