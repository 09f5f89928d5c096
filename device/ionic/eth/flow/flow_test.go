// SPDX-License-Identifier: Apache-2.0

package flow

import (
	"encoding/hex"
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/ernic-dev/ernic/device/ionic/abi"
)

var (
	dstMAC = []byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}
	srcMAC = []byte{2, 0, 0, 0, 0, 1}
)

func eth(typ uint16, tags ...uint32) []byte {
	f := append(append([]byte{}, dstMAC...), srcMAC...)
	for _, t := range tags {
		f = append(f, byte(t>>24), byte(t>>16), byte(t>>8), byte(t))
	}
	return append(f, byte(typ>>8), byte(typ))
}

func ip4(src, dst string, proto byte, fragWord uint16, payload []byte) []byte {
	h := make([]byte, 20)
	h[0], h[9] = 0x45, proto
	be.PutUint16(h[2:], uint16(20+len(payload)))
	be.PutUint16(h[6:], fragWord)
	s, d := netip.MustParseAddr(src).As4(), netip.MustParseAddr(dst).As4()
	copy(h[12:], s[:])
	copy(h[16:], d[:])
	return append(h, payload...)
}

func ip6(src, dst string, next byte, payload []byte) []byte {
	h := make([]byte, 40)
	h[0], h[6], h[7] = 0x60, next, 64
	be.PutUint16(h[4:], uint16(len(payload)))
	s, d := netip.MustParseAddr(src).As16(), netip.MustParseAddr(dst).As16()
	copy(h[8:], s[:])
	copy(h[24:], d[:])
	return append(h, payload...)
}

func ports(s, d uint16) []byte {
	return append([]byte{byte(s >> 8), byte(s), byte(d >> 8), byte(d)}, make([]byte, 16)...)
}

// The values were computed by an independent FNV-1a over the bytes the rule
// names.
func TestFNV_GoldenVectors(t *testing.T) {
	frag6 := append([]byte{ProtoUDP, 0, 0, 1, 0, 0, 0, 9}, ports(53, 5353)...)
	hbh := append([]byte{ProtoTCP, 0, 1, 4, 0, 0, 0, 0}, ports(1, 2)...)
	for _, tc := range []struct {
		name  string
		frame []byte
		want  uint32
	}{
		{"IPv4 TCP", append(eth(TypeIPv4), ip4("192.168.77.1", "192.168.77.2", ProtoTCP, 0x4000, ports(40000, 22))...), 0x24c2e6a4},
		{"IPv4 UDP", append(eth(TypeIPv4), ip4("10.0.0.1", "10.0.0.2", ProtoUDP, 0, ports(53, 5353))...), 0xb54f2b9b},
		{"IPv4 ICMP", append(eth(TypeIPv4), ip4("192.168.77.1", "192.168.77.2", 1, 0, ports(0, 0))...), 0x635d3fb3},
		{"IPv4 first fragment", append(eth(TypeIPv4), ip4("10.0.0.1", "10.0.0.2", ProtoUDP, 0x2000, ports(53, 5353))...), 0x36768ae3},
		{"IPv4 last fragment", append(eth(TypeIPv4), ip4("10.0.0.1", "10.0.0.2", ProtoUDP, 0x00b9, ports(9, 9))...), 0x36768ae3},
		{"IPv4 SCTP", append(eth(TypeIPv4), ip4("172.16.0.1", "172.16.0.9", ProtoSCTP, 0, ports(2905, 2905))...), 0xde9d4893},
		{"VLAN", append(eth(TypeIPv4, 0x81000005), ip4("192.168.77.1", "192.168.77.2", ProtoTCP, 0, ports(40000, 22))...), 0x24c2e6a4},
		{"QinQ", append(eth(TypeIPv4, 0x88a80005, 0x81000006), ip4("192.168.77.1", "192.168.77.2", ProtoTCP, 0, ports(40000, 22))...), 0x24c2e6a4},
		{"IPv6 TCP", append(eth(TypeIPv6), ip6("fe80::1", "fe80::2", ProtoTCP, ports(1, 2))...), 0x4e2cbb87},
		{"IPv6 TCP behind hop-by-hop", append(eth(TypeIPv6), ip6("fe80::1", "fe80::2", 0, hbh)...), 0x4e2cbb87},
		{"IPv6 ICMP", append(eth(TypeIPv6), ip6("2001:db8::1", "2001:db8::2", ProtoICMPv6, ports(0, 0))...), 0xc9f4c6a2},
		{"IPv6 fragment", append(eth(TypeIPv6), ip6("2001:db8::1", "2001:db8::2", 44, frag6)...), 0xf0f50407},
		{"ARP", append(eth(TypeARP), make([]byte, 28)...), 0x28b8db72},
		{"three tags is not looked through", append(eth(TypeIPv4, 0x88a80001, 0x81000002, 0x81000003), ip4("10.0.0.1", "10.0.0.2", 1, 0, nil)...), 0x28b8db72},
		{"IPv4 cut short", append(eth(TypeIPv4), 0x45, 0, 0), 0x28b8db72},
	} {
		i := Parse(tc.frame)
		if got := i.FNV(tc.frame); got != tc.want {
			t.Errorf("%s: hash %#x, want %#x", tc.name, got, tc.want)
		}
	}
}

// The Microsoft RSS verification suite.
func TestToeplitz_PublishedCheckValues(t *testing.T) {
	var key [abi.RSSKeySize]byte
	k, err := hex.DecodeString("6d5a56da255b0ec24167253d43a38fb0d0ca2bcbae7b30b477cb2da38030f20c6a42b73bbeac01fa")
	if err != nil {
		t.Fatal(err)
	}
	copy(key[:], k)
	h := NewToeplitz(key)
	v4 := append(eth(TypeIPv4), ip4("66.9.149.187", "161.142.100.80", ProtoTCP, 0, ports(2794, 1766))...)
	v6 := append(eth(TypeIPv6), ip6("3ffe:2501:200:1fff::7", "3ffe:2501:200:3::1", ProtoTCP, ports(2794, 1766))...)
	frag := append(eth(TypeIPv4), ip4("66.9.149.187", "161.142.100.80", ProtoTCP, 0x2000, ports(2794, 1766))...)
	for _, tc := range []struct {
		name  string
		frame []byte
		types abi.RSSTypes
		want  uint32
		ok    bool
	}{
		{"IPv4 with ports", v4, abi.RSSAll, 0x51ccc178, true},
		{"IPv4 TCP bit alone", v4, abi.RSSIPv4TCP, 0x51ccc178, true},
		{"IPv4 without ports", v4, abi.RSSIPv4, 0x323e8fc2, true},
		{"IPv4 fragment", frag, abi.RSSAll, 0x323e8fc2, true},
		{"IPv6 with ports", v6, abi.RSSAll, 0x40207d3d, true},
		{"IPv6 without ports", v6, abi.RSSIPv6, 0x2cc18cd5, true},
		{"type not enabled", v4, abi.RSSIPv6 | abi.RSSIPv4UDP, 0, false},
		{"no types", v4, 0, 0, false},
		{"not IP", append(eth(TypeARP), make([]byte, 28)...), abi.RSSAll, 0, false},
	} {
		i := Parse(tc.frame)
		got, ok := h.Hash(tc.frame, &i, tc.types)
		if got != tc.want || ok != tc.ok {
			t.Errorf("%s: %#x %v, want %#x %v", tc.name, got, ok, tc.want, tc.ok)
		}
	}
}

func TestPktType_FollowsTheHeaders(t *testing.T) {
	for _, tc := range []struct {
		frame []byte
		want  abi.PktType
	}{
		{append(eth(TypeIPv4), ip4("1.1.1.1", "2.2.2.2", ProtoTCP, 0, ports(1, 2))...), abi.PktIPv4TCP},
		{append(eth(TypeIPv4), ip4("1.1.1.1", "2.2.2.2", ProtoUDP, 0, ports(1, 2))...), abi.PktIPv4UDP},
		{append(eth(TypeIPv4), ip4("1.1.1.1", "2.2.2.2", ProtoUDP, 0x2000, ports(1, 2))...), abi.PktIPv4},
		{append(eth(TypeIPv6), ip6("::1", "::2", ProtoTCP, ports(1, 2))...), abi.PktIPv6TCP},
		{append(eth(TypeIPv6), ip6("::1", "::2", ProtoUDP, ports(1, 2))...), abi.PktIPv6UDP},
		{append(eth(TypeIPv6), ip6("::1", "::2", ProtoICMPv6, ports(1, 2))...), abi.PktIPv6},
		{append(eth(TypeARP), make([]byte, 28)...), abi.PktNonIP},
	} {
		if i := Parse(tc.frame); i.PktType() != tc.want {
			t.Errorf("%x: type %#x, want %#x", tc.frame, i.PktType(), tc.want)
		}
	}
}

// slowSum adds one 16-bit word at a time.
func slowSum(b []byte) uint16 {
	var s uint32
	for i := 0; i < len(b); i += 2 {
		w := uint32(b[i])
		if i+1 < len(b) {
			w |= uint32(b[i+1]) << 8
		}
		if s += w; s > 0xffff {
			s = s&0xffff + 1
		}
	}
	return uint16(s)
}

func TestSum_AgreesWithWordByWord(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for n := range 300 {
		b := make([]byte, n)
		for i := range b {
			b[i] = byte(r.Uint32())
			if n%3 == 0 {
				b[i] = 0xff
			}
		}
		if got, want := Sum(b), slowSum(b); got != want && (got^want != 0xffff || got != 0 && want != 0) {
			t.Fatalf("%d bytes: %#x, want %#x", n, got, want)
		}
	}
}

func TestFillChecksum_MakesAReceiverAccept(t *testing.T) {
	f := append(eth(TypeIPv4), ip4("10.0.0.1", "10.0.0.2", ProtoUDP, 0, ports(7, 9))...)
	f = append(f, 0x55) // odd length
	l4 := f[34:]
	pseudo := append(append([]byte{}, f[26:34]...), 0, ProtoUDP, byte(len(l4)>>8), byte(len(l4)))
	s := Sum(pseudo)
	f[40], f[41] = byte(s), byte(s>>8)
	if !FillChecksum(f, 34, 6) {
		t.Fatal("refused a sound frame")
	}
	if got := Sum(append(pseudo, l4...)); got != 0xffff {
		t.Fatalf("receiver's sum %#x, want 0xffff", got)
	}
	for _, c := range [][2]int{{34, len(f)}, {len(f) - 1, 0}, {60000, 16}, {-1, 2}} {
		if FillChecksum(f, c[0], c[1]) {
			t.Errorf("start %d offset %d accepted in %d bytes", c[0], c[1], len(f))
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add(append(eth(TypeIPv4), ip4("1.1.1.1", "2.2.2.2", ProtoTCP, 0, ports(1, 2))...))
	f.Add(append(eth(TypeIPv6, 0x81000001), ip6("::1", "::2", 0, []byte{44, 1, 0, 0, 0, 0, 0, 0})...))
	f.Add([]byte{1, 2, 3})
	h := NewToeplitz([abi.RSSKeySize]byte{1, 2, 3})
	f.Fuzz(func(t *testing.T, b []byte) {
		i := Parse(b)
		i.FNV(b)
		h.Hash(b, &i, abi.RSSAll)
		if i.IP != 0 && len(i.Source(b)) != i.addrLen {
			t.Fatal("source address does not lie in the frame")
		}
		if i.L3 > len(b) && len(b) >= EthHeader || i.L4 > len(b) || i.Ports && i.L4+4 > len(b) {
			t.Fatalf("header outside the frame: %+v of %d", i, len(b))
		}
	})
}

func BenchmarkParseFNV(b *testing.B) {
	f := append(eth(TypeIPv4), ip4("10.0.0.1", "10.0.0.2", ProtoTCP, 0, ports(1, 2))...)
	b.ReportAllocs()
	for b.Loop() {
		i := Parse(f)
		i.FNV(f)
	}
}

func BenchmarkSum1500(b *testing.B) {
	f := make([]byte, 1500)
	b.SetBytes(1500)
	for b.Loop() {
		Sum(f)
	}
}
