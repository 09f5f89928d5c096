// SPDX-License-Identifier: Apache-2.0

package eth

import (
	"github.com/ernic-dev/ernic/device/ionic/abi"
)

// maxVLAN is the number of VLAN ids.
const maxVLAN = 4096

// filterKey identifies what a filter matches.
type filterKey struct {
	match abi.RxMatch
	vlan  uint16
	mac   [6]byte
}

// filterTable holds the receive filters by id and by what they match.
type filterTable struct {
	byID  map[uint32]filterKey
	byKey map[filterKey]uint32
	last  uint32 // ids count up from 1 and are not used again
	macs  int    // filters with a MAC address
}

func (t *filterTable) add(k filterKey) uint32 {
	if t.byID == nil {
		t.byID, t.byKey = map[uint32]filterKey{}, map[filterKey]uint32{}
	}
	for {
		t.last++
		if _, used := t.byID[t.last]; !used && t.last != 0 {
			break
		}
	}
	t.byID[t.last], t.byKey[k] = k, t.last
	if k.match != abi.RxMatchVLAN {
		t.macs++
	}
	return t.last
}

func (t *filterTable) remove(id uint32) (k filterKey, ok bool) {
	if k, ok = t.byID[id]; !ok {
		return k, false
	}
	delete(t.byID, id)
	delete(t.byKey, k)
	if k.match != abi.RxMatchVLAN {
		t.macs--
	}
	return k, true
}

func (l *LIF) cmdRxModeSet(r *request) error {
	if err := l.needLIF(r); err != nil {
		return err
	}
	m := r.cmd.RxMode()
	if m&^abi.RxModeAll != 0 {
		return refuse(abi.StatusEInval, "receive mode %#x has unknown bits", uint16(m))
	}
	l.ctl.mode = m
	l.refresh()
	return nil
}

func (l *LIF) cmdRxFilterAdd(r *request) error {
	if err := l.needLIF(r); err != nil {
		return err
	}
	f := r.cmd.RxFilter()
	switch f.Match {
	case abi.RxMatchVLAN, abi.RxMatchMAC, abi.RxMatchMACVLAN:
	case abi.RxMatchSteer:
		return refuse(abi.StatusENoSupp, "packet class steering is not supported")
	default:
		return refuse(abi.StatusEInval, "filter match %#x does not exist", uint16(f.Match))
	}
	if f.VLAN >= maxVLAN {
		return refuse(abi.StatusEInval, "VLAN %d does not exist", f.VLAN)
	}
	t := &l.ctl.filters
	k := filterKey{match: f.Match, vlan: f.VLAN, mac: f.MAC}
	id, known := t.byKey[k]
	if !known {
		if f.Match != abi.RxMatchVLAN && t.macs >= maxMACFilters {
			return refuse(abi.StatusENoSpc, "all %d MAC filters are in use", maxMACFilters)
		}
		id = t.add(k)
		l.refresh()
		l.filterChanged(k, true)
	}
	r.comp.SetFilterID(id)
	return nil
}

func (l *LIF) cmdRxFilterDel(r *request) error {
	if err := l.needLIF(r); err != nil {
		return err
	}
	id := r.cmd.RxFilterID()
	k, ok := l.ctl.filters.remove(id)
	if !ok {
		return refuse(abi.StatusEExist, "there is no filter %d", id)
	}
	l.refresh()
	l.filterChanged(k, false)
	return nil
}

// dropFilters removes every filter. Holds ctl.
func (l *LIF) dropFilters() {
	old := l.ctl.filters.byID
	l.ctl.filters = filterTable{}
	for _, k := range old {
		l.filterChanged(k, false)
	}
}

// filterChanged tells the observer of a unicast address. Holds ctl.
func (l *LIF) filterChanged(k filterKey, added bool) {
	if l.cfg.Observer != nil && k.match != abi.RxMatchVLAN && k.mac[0]&1 == 0 {
		l.cfg.Observer.MACFilter(k.mac, added)
	}
}

// macKey packs an address for map keys; vlan distinguishes MAC+VLAN filters.
func macKey(mac []byte, vlan uint16) uint64 {
	return uint64(vlan)<<48 | uint64(mac[0])<<40 | uint64(mac[1])<<32 | uint64(mac[2])<<24 |
		uint64(mac[3])<<16 | uint64(mac[4])<<8 | uint64(mac[5])
}

// ownMACs is the set of addresses that are the guest's: the station address and
// its unicast filters.
type ownMACs struct {
	station [6]byte
	more    map[[6]byte]struct{}
}

func (o *ownMACs) Has(mac [6]byte) bool {
	if mac == o.station {
		return true
	}
	_, ok := o.more[mac]
	return ok
}
