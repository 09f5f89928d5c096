// SPDX-License-Identifier: Apache-2.0

package header

import (
	"encoding/hex"
	"strings"
	"testing"
)

func unhex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.ReplaceAll(s, " ", ""))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

const (
	macs    = "02aabbccdd02 02aabbccdd01"
	ipv4    = "456affff000040004011 0000 c0a8c801 c0a8c802"
	ipv6    = "66a12345 0020 11 40 fe8000000000000000aabbfffeccdd01 fe8000000000000000aabbfffeccdd02"
	udp     = "6e70 12b7 0020 0000"
	tag     = "8100 6005"
	mapped1 = "00000000000000000000ffffc0a8c801"
	mapped2 = "00000000000000000000ffffc0a8c802"
	local1  = "fe8000000000000000aabbfffeccdd01"
	local2  = "fe8000000000000000aabbfffeccdd02"
)

// What the kernel's own packer makes, for both families with and without VLAN.
var golden = []struct {
	name           string
	bytes          string
	len            int
	srcGID, dstGID string
	want           Template
	grh            string // for 5 payload bytes without immediate
	grhImm         string // for 256 payload bytes with immediate
}{
	{
		"IPv4", macs + "0800" + ipv4 + udp, 42, mapped1, mapped2,
		Template{IPv4: true, Traffic: 0x6a, HopLimit: 64, SrcPort: 0x6e70},
		strings.Repeat("00", 20) + "456a003c000040004011 28f2 c0a8c801 c0a8c802",
		strings.Repeat("00", 20) + "456a0138000040004011 27f6 c0a8c801 c0a8c802",
	},
	{
		"IPv4 with VLAN", macs + tag + "0800" + ipv4 + udp, 46, mapped1, mapped2,
		Template{IPv4: true, Tagged: true, TCI: 0x6005, Traffic: 0x6a, HopLimit: 64, SrcPort: 0x6e70},
		strings.Repeat("00", 20) + "456a003c000040004011 28f2 c0a8c801 c0a8c802",
		strings.Repeat("00", 20) + "456a0138000040004011 27f6 c0a8c801 c0a8c802",
	},
	{
		"IPv6", macs + "86dd" + ipv6 + udp, 62, local1, local2,
		Template{Traffic: 0x6a, Flow: 0x12345, HopLimit: 64, SrcPort: 0x6e70},
		"66a12345 0028 11 40" + local1 + local2,
		"66a12345 0124 11 40" + local1 + local2,
	},
	{
		"IPv6 with VLAN", macs + tag + "86dd" + ipv6 + udp, 66, local1, local2,
		Template{Tagged: true, TCI: 0x6005, Traffic: 0x6a, Flow: 0x12345, HopLimit: 64, SrcPort: 0x6e70},
		"66a12345 0028 11 40" + local1 + local2,
		"66a12345 0124 11 40" + local1 + local2,
	},
}

func TestParse_KernelTemplates(t *testing.T) {
	for _, c := range golden {
		b := unhex(t, c.bytes)
		if len(b) != c.len {
			t.Fatalf("%s: %d bytes, want %d", c.name, len(b), c.len)
		}
		got, err := Parse(b)
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		want := c.want
		copy(want.DstMAC[:], b)
		copy(want.SrcMAC[:], b[6:])
		copy(want.SrcGID[:], unhex(t, c.srcGID))
		copy(want.DstGID[:], unhex(t, c.dstGID))
		want.Len = uint8(copy(want.Raw[:], b))
		if *got != want {
			t.Errorf("%s:\n got %+v\nwant %+v", c.name, *got, want)
		}
	}
}

// The 40 bytes agree with the family, carry the right lengths and, for IPv4, a
// checksum that user space verifies.
func TestGRH_AgreesWithTheTemplate(t *testing.T) {
	for _, c := range golden {
		tmpl, err := Parse(unhex(t, c.bytes))
		if err != nil {
			t.Fatal(err)
		}
		for _, g := range []struct {
			n    int
			imm  bool
			want string
		}{{5, false, c.grh}, {256, true, c.grhImm}} {
			got := [GRHLen]byte{0xee, 0xee}
			tmpl.GRH(&got, g.n, g.imm)
			if want := unhex(t, g.want); string(got[:]) != string(want) {
				t.Errorf("%s, %d bytes:\n got %x\nwant %x", c.name, g.n, got, want)
			}
			if !tmpl.IPv4 {
				continue
			}
			var sum uint32
			for i := 20; i < 40; i += 2 {
				sum += uint32(be.Uint16(got[i:]))
			}
			for sum > 0xffff {
				sum = sum&0xffff + sum>>16
			}
			if sum != 0xffff {
				t.Errorf("%s: header sums up to %#x", c.name, sum)
			}
			if got[0]>>4 == 6 {
				t.Errorf("%s: the bytes look like IPv6", c.name)
			}
		}
	}
}

func TestParse_RefusesOtherFrames(t *testing.T) {
	good := func() []byte { return unhex(t, macs+"0800"+ipv4+udp) }
	good6 := func() []byte { return unhex(t, macs+"86dd"+ipv6+udp) }
	for name, b := range map[string][]byte{
		"nothing":             nil,
		"short":               good()[:41],
		"long":                append(good(), 0),
		"too long":            make([]byte, 67),
		"ARP":                 patch(good(), 12, 0x08, 0x06),
		"two tags":            patch(unhex(t, macs+tag+tag+"0800"+ipv4+udp), 0, 2),
		"tag on a short one":  patch(good(), 12, 0x81, 0x00),
		"IPv4 with options":   patch(good(), 14, 0x46),
		"IPv4 with version 6": patch(good(), 14, 0x65),
		"TCP":                 patch(good(), 23, 6),
		"other port":          patch(good(), 36, 0x12, 0xb8),
		"IPv6 of version 4":   patch(good6(), 14, 0x45),
		"IPv6 with TCP":       patch(good6(), 20, 6),
		"IPv6 short":          good6()[:61],
		"IPv6 other port":     patch(good6(), 56, 0, 53),
	} {
		if tmpl, err := Parse(b); err == nil {
			t.Errorf("%s: taken as %+v", name, tmpl)
		} else if err.Error() == "" {
			t.Errorf("%s: error without words", name)
		}
	}
}

func patch(b []byte, at int, v ...byte) []byte {
	copy(b[at:], v)
	return b
}

func FuzzParse(f *testing.F) {
	for _, c := range golden {
		f.Add(unhex(f, c.bytes), 100, true)
	}
	f.Fuzz(func(t *testing.T, b []byte, n int, imm bool) {
		tmpl, err := Parse(b)
		if err != nil {
			return
		}
		if string(tmpl.Raw[:tmpl.Len]) != string(b) {
			t.Fatal("the raw bytes are not those of the template")
		}
		if tmpl.IPv4 && (tmpl.SrcGID[10] != 0xff || tmpl.SrcGID[0] != 0) {
			t.Fatalf("IPv4 source is not mapped: %x", tmpl.SrcGID)
		}
		var g [GRHLen]byte
		tmpl.GRH(&g, n&0xffff, imm)
		if v6 := g[0]>>4 == 6; v6 == tmpl.IPv4 {
			t.Fatalf("family of the bytes disagrees with the template: %x", g)
		}
	})
}
