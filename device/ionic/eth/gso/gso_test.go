// SPDX-License-Identifier: Apache-2.0

package gso

import (
	"bytes"
	"testing"

	"github.com/ernic-dev/ernic/device/ionic/eth/flow"
	"github.com/ernic-dev/ernic/device/netport"
)

// packet returns a TCP packet with n bytes of payload behind tags tags, and
// options bytes of TCP options.
func packet(ip, tags, options, n int) []byte {
	f := []byte{2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1}
	for range tags {
		f = append(f, 0x81, 0x00, 0, 5)
	}
	if ip == 4 {
		f = append(f, 0x08, 0x00, 0x45, 0, 0, 0, 0xff, 0xff, 0x40, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2)
	} else {
		f = append(f, 0x86, 0xdd, 0x60, 0, 0, 0, 0, 0, 6, 64)
		f = append(f, bytes.Repeat([]byte{0xfe, 1}, 16)...)
	}
	f = append(f, 1, 2, 3, 4, 0xff, 0xff, 0xff, 0xf0, 0, 0, 0, 0, byte(5+options/4)<<4, 0x99, 0, 0, 0, 0, 0, 0)
	f = append(f, bytes.Repeat([]byte{1}, options)...)
	for i := range n {
		f = append(f, byte(i*11))
	}
	return f
}

func kind(ip int) netport.Segmentation {
	if ip == 6 {
		return netport.SegmentTCP6
	}
	return netport.SegmentTCP4
}

// check cuts f and proves that the segments are sound and are the packet.
func check(t *testing.T, f []byte, size uint16, segment netport.Segmentation) (segments int) {
	t.Helper()
	before := bytes.Clone(f)
	i := flow.Parse(f)
	var c Cutter
	if !c.Start(f, &i, &netport.Offload{Segment: segment, Size: size}) {
		return 0
	}
	want := c.Segments()
	var joined []byte
	for {
		head, payload, sum, ok := c.Next()
		if !ok {
			break
		}
		if len(payload) != c.size && segments != want-1 || len(payload) == 0 || len(head) != c.Header() {
			t.Fatalf("segment %d of %d has %d bytes of %d", segments, want, len(payload), size)
		}
		if sum != flow.Sum(payload) {
			t.Fatalf("segment %d: the sum is %#x, want %#x", segments, sum, flow.Sum(payload))
		}
		g := append(bytes.Clone(head), payload...)
		j := flow.Parse(g)
		if l4 := flow.Add(Pseudo(g, &j, len(g)-j.L4), flow.Sum(g[j.L4:])); l4 != 0xffff {
			t.Fatalf("segment %d: TCP checksum sums to %#x", segments, l4)
		}
		if j.IP == 4 && flow.Sum(g[j.L3:j.L4]) != 0xffff {
			t.Fatalf("segment %d: IPv4 checksum is wrong", segments)
		}
		if seq := be.Uint32(g[j.L4+4:]); seq != be.Uint32(f[i.L4+4:])+uint32(len(joined)) {
			t.Fatalf("segment %d has sequence number %#x", segments, seq)
		}
		joined = append(joined, payload...)
		segments++
	}
	if segments != want || !bytes.Equal(joined, f[c.n:]) {
		t.Fatalf("%d segments of %d, %d bytes of %d", segments, want, len(joined), len(f)-c.n)
	}
	if !bytes.Equal(f, before) {
		t.Fatal("the packet was written to")
	}
	return segments
}

func TestCutter_SegmentsAreThePacket(t *testing.T) {
	for _, ip := range []int{4, 6} {
		for tags := range 3 {
			for _, options := range []int{0, 12, 40} {
				for _, n := range []int{1, 1399, 1400, 1401, 2800, 60000} {
					if got, want := check(t, packet(ip, tags, options, n), 1400, kind(ip)), (n+1399)/1400; got != want {
						t.Errorf("IPv%d with %d tags, %d bytes of options, %d of payload: %d segments, want %d", ip, tags, options, n, got, want)
					}
				}
			}
		}
	}
}

func TestCutter_RefusesSegmentsWithoutALength(t *testing.T) {
	if n := check(t, packet(4, 0, 0, 65500), 0xffff, netport.SegmentTCP4); n != 0 {
		t.Errorf("a packet of 65540 bytes became %d segments", n)
	}
	if n := check(t, packet(4, 0, 0, 65500), 40000, netport.SegmentTCP4); n != 2 {
		t.Errorf("a packet of 65540 bytes became %d segments of up to 40000", n)
	}
}

func TestCutter_Flags(t *testing.T) {
	f := packet(4, 0, 0, 3000) // CWR, ACK, PSH, FIN
	i := flow.Parse(f)
	var c Cutter
	c.Start(f, &i, &netport.Offload{Segment: netport.SegmentTCP4, Size: 1000})
	for n, want := range []byte{0x90, 0x10, 0x19} {
		head, _, _, _ := c.Next()
		if got := head[i.L4+13]; got != want {
			t.Errorf("segment %d has flags %#x, want %#x", n, got, want)
		}
		if id := be.Uint16(head[i.L3+4:]); id != 0xffff+uint16(n) {
			t.Errorf("segment %d has identification %#x", n, id)
		}
	}
}

func FuzzCutter(f *testing.F) {
	f.Add(packet(4, 1, 12, 5000), uint16(1448), uint8(1))
	f.Add(packet(6, 2, 0, 100), uint16(1), uint8(2))
	f.Add(packet(4, 0, 40, 0), uint16(0), uint8(1))
	f.Add([]byte{1}, uint16(1), uint8(9))
	f.Fuzz(func(t *testing.T, b []byte, size uint16, segment uint8) {
		check(t, b[:min(len(b), netport.MaxOffload)], size, netport.Segmentation(segment))
	})
}
