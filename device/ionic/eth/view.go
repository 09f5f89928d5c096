// SPDX-License-Identifier: Apache-2.0

package eth

import (
	"github.com/ernic-dev/ernic/device/ionic/abi"
	"github.com/ernic-dev/ernic/device/ionic/eth/flow"
)

// rxView is what the receive path decides by, made anew by every command that
// changes it and never changed after.
type rxView struct {
	up       bool // initialised, and the link is up
	mode     abi.RxMode
	macs     map[uint64]struct{} // listed addresses, unicast and multicast
	macVLANs map[uint64]struct{} // listed (address, VLAN) pairs
	vlans    *[maxVLAN / 64]uint64
	features abi.Features

	enabled []*rxQueue // in index order, for the FNV rule
	queues  []*rxQueue // all, by index, for the indirection table
	rss     *rssState  // nil: steer by the FNV rule
}

// refresh publishes a new view. Holds ctl.
func (l *LIF) refresh() {
	c := &l.ctl
	v := &rxView{
		up:       c.inited && c.port.up(),
		mode:     c.mode,
		macs:     map[uint64]struct{}{},
		features: c.features,
		queues:   l.rx,
	}
	own := &ownMACs{station: c.mac, more: map[[6]byte]struct{}{}}
	var vlans [maxVLAN / 64]uint64
	for k := range c.filters.byKey {
		switch k.match {
		case abi.RxMatchVLAN:
			vlans[k.vlan/64] |= 1 << (k.vlan % 64)
			continue
		case abi.RxMatchMAC:
			v.macs[macKey(k.mac[:], 0)] = struct{}{}
		case abi.RxMatchMACVLAN:
			if v.macVLANs == nil {
				v.macVLANs = map[uint64]struct{}{}
			}
			v.macVLANs[macKey(k.mac[:], k.vlan)] = struct{}{}
		}
		if k.mac[0]&1 == 0 {
			own.more[k.mac] = struct{}{}
		}
	}
	if c.features&abi.FeatureVLANRxFilter != 0 {
		v.vlans = &vlans
	}
	for _, q := range l.rx {
		if qState(q.state.Load()) == qEnabled {
			v.enabled = append(v.enabled, q)
		}
	}
	if c.features&abi.FeatureRxHash != 0 && c.rss.types != 0 {
		rss := c.rss
		v.rss = &rss
	}
	l.view.Store(v)
	l.own.Store(own)
}

// accept decides whether the LIF wants a frame.
func (v *rxView) accept(f []byte, i *flow.Info, c castClass) bool {
	if v.mode&abi.RxModePromisc != 0 {
		return true
	}
	switch c {
	case broadcast:
		if v.mode&abi.RxModeBroadcast == 0 {
			return false
		}
	case multicast:
		if v.mode&abi.RxModeAllMulti == 0 && (v.mode&abi.RxModeMulticast == 0 || !v.listed(f, i)) {
			return false
		}
	case unicast:
		if v.mode&abi.RxModeUnicast == 0 || !v.listed(f, i) {
			return false
		}
	}
	if v.vlans == nil || !ctagged(f) {
		return true
	}
	// A priority tag (VLAN 0) names no VLAN.
	vid := i.TCI & (maxVLAN - 1)
	return vid == 0 || v.vlans[vid/64]&(1<<(vid%64)) != 0
}

func (v *rxView) listed(f []byte, i *flow.Info) bool {
	if _, ok := v.macs[macKey(f, 0)]; ok {
		return true
	}
	if v.macVLANs == nil || i.Tags == 0 {
		return false
	}
	_, ok := v.macVLANs[macKey(f, i.TCI&(maxVLAN-1))]
	return ok
}

// ctagged reports whether the outer tag is 0x8100.
func ctagged(f []byte) bool {
	return len(f) >= flow.EthHeader+4 && f[12] == 0x81 && f[13] == 0x00
}

// steer chooses the queue of an accepted frame and returns its hash. It returns
// nil if no queue is to take it.
func (v *rxView) steer(f []byte, i *flow.Info) (q *rxQueue, hash uint32) {
	if v.rss != nil {
		hash, ok := v.rss.hash.Hash(f, i, v.rss.types)
		if !ok {
			return v.queues[0], 0
		}
		return v.queues[v.rss.table[hash%rssTableSize]], hash
	}
	if v.features&abi.FeatureRxHash != 0 {
		return v.queues[0], 0 // scaling is switched off
	}
	switch len(v.enabled) {
	case 0:
		return nil, 0
	case 1:
		return v.enabled[0], 0
	}
	return v.enabled[i.FNV(f)%uint32(len(v.enabled))], 0
}

// rssState is what LIF_SETATTR RSS sets.
type rssState struct {
	types abi.RSSTypes
	hash  *flow.Toeplitz
	table [rssTableSize]uint8
}
