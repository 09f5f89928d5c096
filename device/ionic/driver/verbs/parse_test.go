// SPDX-License-Identifier: Apache-2.0

package verbs

import (
	"bytes"
	"encoding/hex"
	"math/bits"
	"net"
	"net/netip"
	"strings"
	"testing"
)

func unhex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.Map(func(r rune) rune {
		if r == ' ' || r == '|' {
			return -1
		}
		return r
	}, s))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// The bytes are those of the kernel's own header packer.
func TestTemplatesAreTheKernels(t *testing.T) {
	p := Path{
		SrcMAC: net.HardwareAddr{2, 0xaa, 0xbb, 0xcc, 0xdd, 1}, DstMAC: net.HardwareAddr{2, 0xaa, 0xbb, 0xcc, 0xdd, 2},
		Src: netip.MustParseAddr("192.168.1.1"), Dst: netip.MustParseAddr("192.168.1.2"), TrafficClass: 0x68, HopLimit: 64,
	}
	h, profile, err := p.template(true, 0x6e70)
	want := unhex(t, "02aabbccdd02 02aabbccdd01 0800 | 45 6a ffff 0000 4000 40 11 0000 c0a80101 c0a80102 | 6e70 12b7 0020 0000")
	if err != nil || profile != profileIPv4 || !bytes.Equal(h, want) {
		t.Errorf("IPv4: profile %d, %v\n% x, want\n% x", profile, err, h, want)
	}
	p.Src, p.Dst, p.FlowLabel = netip.MustParseAddr("fe80::1"), netip.MustParseAddr("fe80::2"), 0x12345
	h, profile, err = p.template(true, 0x6e70)
	want = append(unhex(t, "02aabbccdd02 02aabbccdd01 86dd | 66a12345 0020 11 40"), p.Src.AsSlice()...)
	want = append(append(want, p.Dst.AsSlice()...), unhex(t, "6e70 12b7 0020 0000")...)
	if err != nil || profile != profileIPv6 || !bytes.Equal(h, want) {
		t.Errorf("IPv6: profile %d, %v\n% x, want\n% x", profile, err, h, want)
	}
	p.Tagged, p.VLAN = true, 0x6005
	h, profile, err = p.template(false, ahSourcePort)
	if err != nil || profile != profileIPv6|profileVLAN || len(h) != 66 || !bytes.Equal(h[12:18], unhex(t, "8100 6005 86dd")) || h[18]<<4|h[19]>>4 != 0x68 {
		t.Errorf("IPv6 with VLAN: profile %d, %v, % x", profile, err, h)
	}
	p.Dst = netip.MustParseAddr("1.2.3.4")
	if _, _, err := p.template(false, 1); err == nil {
		t.Error("a path from IPv6 to IPv4 was accepted")
	}
}

func TestQueueIDsAreABijectionWithTheEngineInTheirBit(t *testing.T) {
	for _, count := range []uint32{16, 64, 4096} {
		for shift := uint8(1); 1<<shift <= count/2; shift++ {
			q := newQueueIDs(count, shift, 0)
			seen := make(map[uint32]bool)
			for i := range count {
				udma := int(i % 2)
				id, err := q.take(udma)
				if err != nil || id >= count || seen[id] || int(id>>shift&1) != udma {
					t.Fatalf("count %d shift %d: id %d for engine %d, %v", count, shift, id, udma, err)
				}
				seen[id] = true
			}
			if _, err := q.take(0); err == nil {
				t.Errorf("count %d shift %d: more ids than there are", count, shift)
			}
			for id := range seen {
				q.put(id)
			}
			if id, err := q.take(1); err != nil || id>>shift&1 != 1 {
				t.Errorf("count %d shift %d: id %d after all were put back, %v", count, shift, id, err)
			}
		}
	}
	q := newQueueIDs(4096, 3, reservedQPs)
	for _, want := range []struct {
		udma int
		id   uint32
	}{{0, 2}, {1, 8}, {0, 3}, {1, 9}} {
		if id, err := q.take(want.udma); id != want.id || err != nil {
			t.Errorf("engine %d got id %d, want %d", want.udma, id, want.id)
		}
	}
}

func TestStridesAndDepthsAreTheProviders(t *testing.T) {
	for _, c := range []struct{ sges, inline, want int }{
		{1, 0, 64}, {2, 0, 64}, {3, 0, 128}, {8, 0, 256}, {1, 236, 512}, {1, 32, 64}, {1, 33, 128},
	} {
		if got := 1 << strideLog2(c.sges, c.inline); got != c.want {
			t.Errorf("%d SGEs, %d inline bytes: stride %d, want %d", c.sges, c.inline, got, c.want)
		}
	}
	for _, c := range []struct {
		n    int
		want uint8
	}{{0, 0}, {1, 1}, {15, 4}, {16, 4}} {
		if got := readDepth(c.n); got != c.want {
			t.Errorf("depth for %d reads %d, want %d", c.n, got, c.want)
		}
	}
	if got := destDepth(16); got != 5 {
		t.Errorf("depth for 16 reads at the responder %d, want 5", got)
	}
}

func goodIdentity() []byte {
	b := make([]byte, 1912)
	le.PutUint64(b, 3)
	r := b[392:]
	r[0], r[1], r[2] = 1, 11, 19
	le.PutUint32(r[4:], 1<<24)
	le.PutUint32(r[8:], 1<<16)
	le.PutUint32(r[12:], 1<<16)
	r[16], r[22] = 9, 3
	for i, n := range []uint32{1, 4096, 4096, 8192, 32} {
		q := b[424+12*i:]
		q[0] = uint8(4 + i)
		le.PutUint32(q[4:], n)
	}
	return b
}

func TestIdentityMistakesAreNamed(t *testing.T) {
	if id, err := parseIdentity(goodIdentity()); err != nil || id.SQ.Count != 4096 || id.EQ.Type != 8 {
		t.Fatalf("good identity: %+v, %v", id, err)
	}
	for name, c := range map[string]struct {
		spoil func(b []byte)
		want  string
	}{
		"no capability":   {func(b []byte) { b[0] = 1 }, "capability"},
		"odd count":       {func(b []byte) { le.PutUint32(b[440:], 3000) }, "powers of two"},
		"shift 0":         {func(b []byte) { b[414] = 0 }, "udma_shift"},
		"shift too large": {func(b []byte) { b[414] = 12 }, "udma_shift"},
		"old opcodes":     {func(b []byte) { b[393] = 10 }, "refuses"},
		"new version":     {func(b []byte) { b[392] = 3 }, "version 3"},
		"old version":     {func(b []byte) { b[392], b[393] = 0, 11 }, "version 0"},
		"no admin queue":  {func(b []byte) { le.PutUint32(b[428:], 0) }, "no admin queue"},
		"base":            {func(b []byte) { b[480] = 4 }, "bases"},
		"regions":         {func(b []byte) { le.PutUint32(b[400:], 1) }, "memory regions"},
		"stride":          {func(b []byte) { b[408] = 5 }, "max_stride"},
	} {
		b := goodIdentity()
		c.spoil(b)
		if _, err := parseIdentity(b); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want one that says %q", name, err, c.want)
		}
	}
}

func FuzzParseIdentity(f *testing.F) {
	f.Add(goodIdentity()[392:648])
	f.Add(make([]byte, 256))
	f.Fuzz(func(t *testing.T, block []byte) {
		b := goodIdentity()
		copy(b[392:648], block)
		id, err := parseIdentity(b)
		if err != nil {
			return
		}
		if bits.OnesCount32(id.SQ.Count) != 1 || id.UDMAShift == 0 || id.MRs > 1<<24 || id.MaxStride > 16 {
			t.Errorf("accepted %+v", id)
		}
		q := newQueueIDs(id.SQ.Count, id.UDMAShift, reservedQPs)
		if n, err := q.take(1); err != nil || n >= id.SQ.Count {
			t.Errorf("first id of engine 1 is %d of %d, %v", n, id.SQ.Count, err)
		}
	})
}

func FuzzParseCounters(f *testing.F) {
	entry := func(word uint32, name string) []byte {
		b := make([]byte, 32)
		be.PutUint32(b, word)
		copy(b[4:], name)
		return b
	}
	f.Add(append(entry(4<<28|384, "tx_rdma_ucast_bytes"), make([]byte, 32)...))
	f.Add(entry(7<<28|4088, strings.Repeat("x", 28)))
	f.Add(entry(2<<28|4095, "odd"))
	f.Add(entry(9<<28, "type"))
	f.Fuzz(func(t *testing.T, b []byte) {
		list, err := parseCounters(b)
		if err != nil {
			return
		}
		if len(list) > 128 {
			t.Fatalf("%d counters", len(list))
		}
		values(list, make([]byte, statsSize)) // stays inside the buffer
	})
}

func FuzzParseGRH(f *testing.F) {
	v4 := make([]byte, 40)
	copy(v4[20:], unhex(f, "45 68 0048 0000 4000 40 11 0000 0a000001 0a000002"))
	sum := uint32(0)
	for i := 20; i < 40; i += 2 {
		sum += uint32(be.Uint16(v4[i:]))
	}
	be.PutUint16(v4[30:], ^uint16(sum>>16+sum&0xffff))
	v6 := append(unhex(f, "66812345 0034 11 40"), make([]byte, 32)...)
	f.Add(v4, true)
	f.Add(v6, false)
	f.Add(v6, true)
	f.Add(v4[:39], true)
	f.Fuzz(func(t *testing.T, b []byte, ipv4 bool) {
		g, err := ParseGRH(b, ipv4)
		if err != nil {
			return
		}
		if g.Src.Is4() != ipv4 || g.Dst.Is4() != ipv4 {
			t.Errorf("addresses %v and %v for IPv4 %v", g.Src, g.Dst, ipv4)
		}
	})
}

func TestParseGRHReadsBothFamilies(t *testing.T) {
	v6 := append(unhex(t, "66812345 0034 11 40"), make([]byte, 32)...)
	v6[23], v6[39] = 1, 2
	g, err := ParseGRH(v6, false)
	if err != nil || g.Src != netip.MustParseAddr("::1") || g.Dst != netip.MustParseAddr("::2") || g.TrafficClass != 0x68 || g.Length != 0x34 || g.HopLimit != 64 {
		t.Errorf("%+v, %v", g, err)
	}
	if _, err := ParseGRH(v6, true); err == nil {
		t.Error("an IPv6 header under the IPv4 flag was accepted: the kernel would take the wrong source")
	}
	v6[6] = 58
	if _, err := ParseGRH(v6, false); err == nil {
		t.Error("a header of another protocol was accepted")
	}
}
