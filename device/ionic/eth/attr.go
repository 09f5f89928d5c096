// SPDX-License-Identifier: Apache-2.0

package eth

import (
	"bytes"
	"encoding/binary"

	"github.com/ernic-dev/ernic/device/ionic/abi"
	"github.com/ernic-dev/ernic/device/ionic/eth/flow"
)

var le = binary.LittleEndian

func (l *LIF) cmdLIFInit(r *request) error {
	if t := r.cmd[1]; t != 0 {
		return refuse(abi.StatusEInval, "LIF type %d does not exist", t)
	}
	if err := l.needIndex(r); err != nil {
		return err
	}
	if err := l.needDMA(); err != nil {
		return err
	}
	c := &l.ctl
	if c.inited {
		l.lifReset() // a driver that did not say goodbye
	}
	var info [abi.LIFInfoStats]byte
	l.lifConfig(info[:abi.LIFConfigSize])
	l.lifStatus(info[:])
	if err := l.pub.startLIF(r.cmd.InfoAddress(), info[:]); err != nil {
		return refuse(abi.StatusBadAddr, "lif_info: %v", err)
	}
	c.inited = true
	l.refresh()
	r.comp.SetLIFHWIndex(0)
	return nil
}

func (l *LIF) cmdLIFReset(r *request) error {
	if err := l.needIndex(r); err != nil {
		return err
	}
	l.lifReset()
	return nil
}

func (l *LIF) cmdLIFGetAttr(r *request) error {
	if err := l.needLIF(r); err != nil {
		return err
	}
	c, v := &l.ctl, r.comp.Value()
	switch a := abi.LIFAttr(r.cmd.Attr()); a {
	case abi.LIFAttrState:
		v[0] = byte(abi.LIFEnable)
		if c.quiesced {
			v[0] = byte(abi.LIFQuiesce)
		}
	case abi.LIFAttrMTU:
		le.PutUint32(v, c.mtu)
	case abi.LIFAttrMAC:
		copy(v, c.mac[:])
	case abi.LIFAttrFeatures:
		r.comp.SetFeatures(c.features)
	default:
		return refuse(abi.StatusEInval, "LIF attribute %d cannot be read", a)
	}
	return nil
}

func (l *LIF) cmdLIFSetAttr(r *request) error {
	if err := l.needLIF(r); err != nil {
		return err
	}
	c, v := &l.ctl, r.cmd.Value()
	switch a := abi.LIFAttr(r.cmd.Attr()); a {
	case abi.LIFAttrState:
		return l.setState(abi.LIFState(v[0]))
	case abi.LIFAttrName:
		n := v[:abi.LIFNameLen]
		end := bytes.IndexByte(n, 0)
		if end < 0 {
			return refuse(abi.StatusEInval, "LIF name is not terminated within %d bytes", abi.LIFNameLen)
		}
		c.name = [abi.LIFNameLen]byte{}
		copy(c.name[:], n[:end])
	case abi.LIFAttrMTU:
		mtu := le.Uint32(v)
		if mtu < minMTU || mtu > uint32(l.cfg.MTUMax) {
			return refuse(abi.StatusERange, "MTU %d is not within %d..%d", mtu, minMTU, l.cfg.MTUMax)
		}
		c.mtu = mtu
	case abi.LIFAttrMAC:
		mac := [6]byte(v)
		if mac == [6]byte{} || mac[0]&1 != 0 {
			return refuse(abi.StatusEInval, "%x is no unicast MAC address", mac)
		}
		c.mac = mac
	case abi.LIFAttrFeatures:
		c.features = abi.Features(le.Uint64(v)) & l.cfg.Offload
		r.comp.SetFeatures(c.features)
	case abi.LIFAttrRSS:
		return l.setRSS(r.cmd.RSS())
	case abi.LIFAttrStatsCtrl:
		if v[0] != 0 {
			return refuse(abi.StatusEInval, "statistics operation %d does not exist", v[0])
		}
		l.count.resetLIF()
	default:
		return refuse(abi.StatusEInval, "LIF attribute %d cannot be set", a)
	}
	l.refresh()
	l.publishConfig()
	return nil
}

// setState is LIF_SETATTR STATE. Quiesce means to finish what is under way; it
// is not lasting, since the driver never sends enable: traffic resumes when a
// queue is enabled.
func (l *LIF) setState(s abi.LIFState) error {
	switch s {
	case abi.LIFEnable:
		l.ctl.quiesced = false
	case abi.LIFQuiesce, abi.LIFDisable:
		l.ctl.quiesced = true
		for i := range l.tx {
			if s == abi.LIFDisable {
				l.tx[i].disable()
				l.rx[i].disable()
				continue
			}
			// Taking the lock is waiting for the work under way.
			l.tx[i].flush()
			l.rx[i].flush()
		}
	default:
		return refuse(abi.StatusEInval, "LIF state %d does not exist", s)
	}
	l.refresh()
	l.publishConfig()
	return nil
}

// setRSS is LIF_SETATTR RSS. The table belongs to the command: it is read now
// and copied.
func (l *LIF) setRSS(r abi.RSS) error {
	if r.Types&^abi.RSSAll != 0 {
		return refuse(abi.StatusEInval, "RSS types %#x have unknown bits", uint16(r.Types))
	}
	s := rssState{types: r.Types}
	if r.Types != 0 {
		if err := l.needDMA(); err != nil {
			return err
		}
		if err := l.ctl.mem.ReadAt(s.table[:], r.Table); err != nil {
			return refuse(abi.StatusBadAddr, "RSS indirection table: %v", err)
		}
		for i, q := range s.table {
			if int(q) >= l.cfg.Queues {
				return refuse(abi.StatusEInval, "RSS indirection table entry %d names queue %d, there are %d", i, q,
					l.cfg.Queues)
			}
		}
		s.hash = flow.NewToeplitz(r.Key)
	}
	l.ctl.rss = s
	l.refresh()
	return nil
}
