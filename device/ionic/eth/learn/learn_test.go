// SPDX-License-Identifier: Apache-2.0

package learn

import (
	"encoding/hex"
	"net/netip"
	"slices"
	"testing"

	"github.com/ernic-dev/ernic/device/ionic/eth/flow"
)

var mac = [6]byte{2, 0, 0, 0, 0, 1}

type ownerFunc func([6]byte) bool

func (f ownerFunc) Has(m [6]byte) bool { return f(m) }

var own = ownerFunc(func(m [6]byte) bool { return m == mac })

func unhex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(s)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// Frames as a Linux guest sends them, without padding.
const (
	arpRequest = "ffffffffffff020000000001" + "0806" + "0001080006040001" + "020000000001c0a84d02" + "000000000000c0a84d01"
	arpReply   = "020000000002020000000001" + "0806" + "0001080006040002" + "020000000001c0a84d02" + "020000000002c0a84d01"
	arpProbe   = "ffffffffffff020000000001" + "0806" + "0001080006040001" + "02000000000100000000" + "000000000000c0a84d02"
	arpForged  = "ffffffffffff020000000001" + "0806" + "0001080006040002" + "020000000009c0a84d09" + "000000000000c0a84d01"
	dadProbe   = "3333ff000001020000000001" + "86dd" + "600000000018" + "3aff" +
		"00000000000000000000000000000000" + "ff0200000000000000000001ff000001" +
		"8700000000000000" + "fe80000000000000000000fffe000001"
	advert = "333300000001020000000001" + "86dd" + "600000000018" + "3aff" +
		"fe80000000000000000000fffe000001" + "ff020000000000000000000000000001" +
		"8800000020000000" + "20010db8000000000000000000000007"
	solicit = "3333ff000002020000000001" + "86dd" + "600000000018" + "3aff" +
		"20010db8000000000000000000000007" + "ff0200000000000000000001ff000002" +
		"8700000000000000" + "20010db8000000000000000000000002"
	icmp4     = "020000000002020000000001" + "0800" + "4500001c00000000400100000a0000010a000002" + "0800000000000000"
	dhcp      = "ffffffffffff020000000001" + "0800" + "4500001c00000000401100000000000" + "0ffffffff" + "0044004300080000"
	otherMAC  = "020000000002020000000009" + "0800" + "4500001c00000000400100000a0000090a000002" + "0800000000000000"
	vlanICMP4 = "020000000002020000000001" + "81000064" + "0800" + "4500001c00000000400100000a0000630a000002" + "0800000000000000"
)

func TestFrame_ReportsWhatItProves(t *testing.T) {
	for _, tc := range []struct{ name, frame, want string }{
		{"ARP request", arpRequest, "192.168.77.2 arp"},
		{"ARP reply", arpReply, "192.168.77.2 arp"},
		{"ARP probe has no sender", arpProbe, ""},
		{"ARP for another's hardware address", arpForged, ""},
		{"duplicate address detection", dadProbe, "fe80::ff:fe00:1 dad"},
		{"neighbour advertisement", advert, "2001:db8::7 na"},
		{"neighbour solicitation tells its source", solicit, "2001:db8::7 ip"},
		{"IPv4 source", icmp4, "10.0.0.1 ip"},
		{"DHCP discover has no source", dhcp, ""},
		{"another's frame", otherMAC, ""},
		{"tagged IPv4 source", vlanICMP4, "10.0.0.99 ip"},
	} {
		var got string
		o := New(func(m [6]byte, ip netip.Addr, s Source) { got += ip.String() + " " + s.String() })
		f := unhex(t, tc.frame)
		i := flow.Parse(f)
		o.Frame(f, &i, own)
		if got != tc.want {
			t.Errorf("%s: reported %q, want %q", tc.name, got, tc.want)
		}
	}
}

func TestFrame_ReportsAnAddressOnceUntilForgotten(t *testing.T) {
	var got []string
	o := New(func(_ [6]byte, ip netip.Addr, _ Source) { got = append(got, ip.String()) })
	for range 3 {
		for _, s := range []string{arpRequest, icmp4, advert} {
			f := unhex(t, s)
			i := flow.Parse(f)
			o.Frame(f, &i, own)
		}
	}
	want := []string{"192.168.77.2", "10.0.0.1", "2001:db8::7"}
	if !slices.Equal(got, want) {
		t.Fatalf("reported %v, want %v", got, want)
	}
	o.Forget()
	f := unhex(t, icmp4)
	i := flow.Parse(f)
	o.Frame(f, &i, own)
	if len(got) != 4 {
		t.Fatalf("not reported again after Forget: %v", got)
	}
}

func TestFrame_KnownAddressDoesNotAllocate(t *testing.T) {
	o := New(func([6]byte, netip.Addr, Source) {})
	f := unhex(t, icmp4)
	i := flow.Parse(f)
	if n := testing.AllocsPerRun(1000, func() { o.Frame(f, &i, own) }); n != 0 {
		t.Fatalf("%v allocations per known address", n)
	}
}

func FuzzFrame(f *testing.F) {
	for _, s := range []string{arpRequest, dadProbe, advert, icmp4, vlanICMP4} {
		b := unhex(f, s)
		f.Add(b)
		f.Add(b[:len(b)-3])
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		o := New(func(_ [6]byte, ip netip.Addr, _ Source) {
			if !ip.IsValid() || ip.IsUnspecified() || ip.IsMulticast() {
				t.Fatalf("reported %v", ip)
			}
		})
		i := flow.Parse(b)
		o.Frame(b, &i, ownerFunc(func([6]byte) bool { return true }))
	})
}

func BenchmarkFrame_Known(b *testing.B) {
	o := New(func([6]byte, netip.Addr, Source) {})
	f := unhex(b, icmp4)
	i := flow.Parse(f)
	b.ReportAllocs()
	for b.Loop() {
		o.Frame(f, &i, own)
	}
}
