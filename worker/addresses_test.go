// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/ernic-dev/ernic/device/ionic/eth/learn"
	"github.com/ernic-dev/ernic/device/ionic/rdma"
	"github.com/ernic-dev/ernic/device/ionic/rdma/packet"
	ernicv1 "github.com/ernic-dev/ernic/proto/ernic/v1"
	"github.com/ernic-dev/ernic/proto/gid"
)

// TestG1_ClaimsWhatTheGuestShowsToOwn: sources in the order of their
// reliability, no configuration needed for the common case.
func TestG1_ClaimsWhatTheGuestShowsToOwn(t *testing.T) {
	mac := [6]byte{2, 0xaa, 0xbb, 0xcc, 0xdd, 1}
	var claims []string
	config, err := gid.Parse("10.1.1.1")
	if err != nil {
		t.Fatal(err)
	}
	a := newAddresses(mac, []gid.GID{config}, func(g gid.GID, s ernicv1.ClaimSource) {
		claims = append(claims, fmt.Sprint(g, " ", s))
	})
	a.AddressSeen(mac, netip.MustParseAddr("192.168.200.1"), learn.ARP)
	a.AddressSeen(mac, netip.MustParseAddr("192.168.200.1"), learn.IPSource) // known
	a.AddressSeen(mac, netip.MustParseAddr("fe80::1"), learn.DAD)
	a.AddressSeen(mac, netip.MustParseAddr("2001:db8::7"), learn.IPSource)
	templates{a}.AddressSeen(packet.Address{GID: netip.MustParseAddr("::ffff:10.9.9.9").As16()}, rdma.SourceAH)
	templates{a}.AddressSeen(packet.Address{GID: netip.MustParseAddr("::ffff:10.9.9.8").As16()}, rdma.SourceQP)
	a.MACFilter([6]byte{2, 0, 0, 0, 0, 9}, true)
	a.MACFilter([6]byte{2, 0, 0, 0, 0, 8}, false)
	want := []string{
		"fe80::aa:bbff:fecc:dd01 CLAIM_SOURCE_MAC",
		"::ffff:10.1.1.1 CLAIM_SOURCE_CONFIG",
		"::ffff:192.168.200.1 CLAIM_SOURCE_ARP",
		"fe80::1 CLAIM_SOURCE_NDP",
		"2001:db8::7 CLAIM_SOURCE_IP",
		"::ffff:10.9.9.9 CLAIM_SOURCE_AH",
		"::ffff:10.9.9.8 CLAIM_SOURCE_QP",
		"fe80::ff:fe00:9 CLAIM_SOURCE_MAC",
	}
	if fmt.Sprint(claims) != fmt.Sprint(want) {
		t.Errorf("claims\n%q\nwant\n%q", claims, want)
	}
}

func TestAddresses_RefusesWhatNoNodeCanOwnAndBoundsAGuest(t *testing.T) {
	n := 0
	a := newAddresses([6]byte{2, 0, 0, 0, 0, 1}, nil, func(gid.GID, ernicv1.ClaimSource) { n++ })
	mac := [6]byte{2, 0, 0, 0, 0, 1}
	for _, s := range []string{"0.0.0.0", "224.0.0.1", "255.255.255.255", "::", "::1", "ff02::1"} {
		a.AddressSeen(mac, netip.MustParseAddr(s), learn.IPSource)
	}
	if n != 1 || a.refused.Load() != 6 {
		t.Fatalf("%d claims, %d refused; want 1 and 6", n, a.refused.Load())
	}
	for i := range 2 * maxLearned {
		a.AddressSeen(mac, netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}), learn.IPSource)
	}
	if n != maxLearned {
		t.Errorf("a guest made %d claims, want at most %d", n, maxLearned)
	}
}

func TestAddresses_OwnsDoesNotAllocate(t *testing.T) {
	a := newAddresses([6]byte{2, 0, 0, 0, 0, 1}, nil, func(gid.GID, ernicv1.ClaimSource) {})
	g := gid.FromMAC([6]byte{2, 0, 0, 0, 0, 1})
	if n := testing.AllocsPerRun(100, func() {
		if !a.Owns(g) {
			t.Fatal("the default GID is not owned")
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
