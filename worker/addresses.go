// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"net/netip"
	"sync"
	"sync/atomic"

	"github.com/ernic-dev/ernic/device/ionic/eth/learn"
	"github.com/ernic-dev/ernic/device/ionic/rdma"
	"github.com/ernic-dev/ernic/device/ionic/rdma/packet"
	ernicv1 "github.com/ernic-dev/ernic/proto/ernic/v1"
	"github.com/ernic-dev/ernic/proto/gid"
)

// maxLearned bounds the addresses one guest may make the worker claim: a guest
// can send from as many source addresses as it likes.
const maxLearned = 1024

// addresses is the set of GIDs the guest owns. The guest's kernel keeps its
// GID table to itself, so it is pieced together from the LIF's MAC, the
// configuration, the frames the guest sends and the header templates of its
// address handles. An address that was seen stays: there is no event that
// takes one back.
type addresses struct {
	mac   [6]byte
	claim func(g gid.GID, s ernicv1.ClaimSource)

	mu      sync.Mutex // serialises writers
	own     atomic.Pointer[map[gid.GID]ernicv1.ClaimSource]
	refused atomic.Uint64 // addresses no node can own, or beyond maxLearned
}

func newAddresses(mac [6]byte, configured []gid.GID, claim func(gid.GID, ernicv1.ClaimSource)) *addresses {
	a := &addresses{mac: mac, claim: claim}
	a.own.Store(&map[gid.GID]ernicv1.ClaimSource{})
	a.add(gid.FromMAC(mac), ernicv1.ClaimSource_CLAIM_SOURCE_MAC)
	for _, g := range configured {
		a.add(g, ernicv1.ClaimSource_CLAIM_SOURCE_CONFIG)
	}
	return a
}

// Owns reports whether g is an address of the guest.
func (a *addresses) Owns(g gid.GID) bool {
	_, ok := (*a.own.Load())[g]
	return ok
}

func (a *addresses) add(g gid.GID, s ernicv1.ClaimSource) {
	if a.Owns(g) {
		return
	}
	a.mu.Lock()
	old := *a.own.Load()
	if _, ok := old[g]; ok || g.Check() != nil || len(old) >= maxLearned {
		a.mu.Unlock()
		if !ok {
			a.refused.Add(1)
		}
		return
	}
	next := make(map[gid.GID]ernicv1.ClaimSource, len(old)+1)
	for k, v := range old {
		next[k] = v
	}
	next[g] = s
	a.own.Store(&next)
	a.mu.Unlock()
	a.claim(g, s)
}

// AddressSeen implements ionic.Observer: the guest sent a frame from ip.
func (a *addresses) AddressSeen(mac [6]byte, ip netip.Addr, s learn.Source) {
	source := ernicv1.ClaimSource_CLAIM_SOURCE_IP
	switch s {
	case learn.ARP:
		source = ernicv1.ClaimSource_CLAIM_SOURCE_ARP
	case learn.DAD, learn.NeighborAdvertisement:
		source = ernicv1.ClaimSource_CLAIM_SOURCE_NDP
	}
	a.add(gid.GID(ip.As16()), source)
}

// MACFilter implements ionic.Observer: the guest listens on another unicast
// MAC, so the default GID made of it is the guest's as well.
func (a *addresses) MACFilter(mac [6]byte, added bool) {
	if added {
		a.add(gid.FromMAC(mac), ernicv1.ClaimSource_CLAIM_SOURCE_MAC)
	}
}

// templates is the same set as the RDMA half sees it: header templates of
// address handles and queue pairs.
type templates struct{ *addresses }

// AddressSeen implements rdma.AddressObserver.
func (t templates) AddressSeen(addr packet.Address, s rdma.AddressSource) {
	source := ernicv1.ClaimSource_CLAIM_SOURCE_AH
	if s == rdma.SourceQP {
		source = ernicv1.ClaimSource_CLAIM_SOURCE_QP
	}
	t.add(gid.GID(addr.GID), source)
}
