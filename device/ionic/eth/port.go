// SPDX-License-Identifier: Apache-2.0

package eth

import (
	"github.com/ernic-dev/ernic/device/ionic/abi"
)

// portState is the port behind the LIF. Guarded by LIF.ctl.
type portState struct {
	config    [abi.PortConfigSize]byte
	wire      bool   // what the port says of the wire
	why       string // there is none, as the port says
	allowed   bool   // what the operator says
	downCount uint16 // link losses since the last device reset
	announce  int    // ticks that will announce the link state again
}

// linkReminders is on how many ticks a link change is announced again. The
// driver drops an event that comes while it still works on the one before, and
// would see a quick down and up only at its own check every five seconds.
const linkReminders = 2

func (p *portState) cfg() abi.PortConfig { return abi.PortConfig(p.config[:]) }

// up is the state of the link: the wire is there and neither the operator nor the
// guest has taken the port down.
func (p *portState) up() bool { return p.wire && p.allowed && p.cfg().State() != abi.PortAdminDown }

func (p *portState) oper() abi.PortOperStatus {
	if p.up() {
		return abi.PortOperUp
	}
	return abi.PortOperDown
}

// speeds are the link speeds the port can be set to, Mb/s.
var speeds = [...]uint32{1000, 10000, 25000, 40000, 50000, 100000, 200000, 400000}

func knownSpeed(mbps uint32) bool {
	for _, s := range speeds {
		if s == mbps {
			return true
		}
	}
	return false
}

// resetPort brings the port's configuration back to the profile's. Holds ctl.
func (l *LIF) resetPort() {
	p := &l.ctl.port
	p.config, p.downCount, p.announce = [abi.PortConfigSize]byte{}, 0, 0
	c := p.cfg()
	c.SetSpeed(l.cfg.Speed)
	c.SetMTU(uint32(min(l.cfg.MTUMax, maxPortMTU)))
	c.SetState(abi.PortAdminUp)
	if l.cfg.Speed >= 100000 {
		c.SetFEC(abi.FECRS)
	}
	l.refresh()
}

func (l *LIF) needPort(r *request) error {
	if i := r.cmd.PortIndex(); i != 0 {
		return refuse(abi.StatusEInval, "there is no port %d", i)
	}
	return nil
}

func (l *LIF) cmdPortIdentify(r *request) error {
	if err := l.needPort(r); err != nil {
		return err
	}
	id := abi.PortIdentity(r.answer())
	id.SetVersion(abi.PortIdentityVersion)
	id.SetType(abi.PortTypeEth)
	id.SetLanes(4)
	id.SetAutoneg(1)
	id.SetFrameSize(minFrame, uint32(l.maxFrame))
	id.SetFECTypes(abi.FECNone, abi.FECFirecode, abi.FECRS)
	id.SetPauseTypes(abi.PauseNone, abi.PauseLink)
	id.SetSpeed(0, l.cfg.Speed)
	n := 1
	for _, s := range speeds {
		if s != l.cfg.Speed {
			id.SetSpeed(n, s)
			n++
		}
	}
	copy(id.Config(), l.ctl.port.config[:])
	r.comp.SetVersion(abi.OpPortIdentify, abi.PortIdentityVersion)
	return nil
}

func (l *LIF) cmdPortInit(r *request) error {
	if err := l.needPort(r); err != nil {
		return err
	}
	if err := l.needDMA(); err != nil {
		return err
	}
	in := abi.PortConfig(r.data[:abi.PortConfigSize])
	if s := in.Speed(); !knownSpeed(s) {
		return refuse(abi.StatusEInval, "the port cannot run at %d Mb/s", s)
	}
	if mtu := in.MTU(); mtu < minMTU || mtu > uint32(l.cfg.MTUMax) {
		return refuse(abi.StatusERange, "port MTU %d is not within %d..%d", mtu, minMTU, l.cfg.MTUMax)
	}
	if s := in.State(); s > abi.PortAdminUp {
		return refuse(abi.StatusEInval, "port state %d does not exist", s)
	}
	was := l.ctl.port.up()
	copy(l.ctl.port.config[:], in)
	var info [abi.PortInfoSize]byte
	l.portInfo(info[:])
	l.count.resetPort()
	if err := l.pub.startPort(r.cmd.InfoAddress(), info[:]); err != nil {
		return refuse(abi.StatusBadAddr, "port_info: %v", err)
	}
	l.linkChanged(was)
	return nil
}

func (l *LIF) cmdPortReset(r *request) error {
	if err := l.needPort(r); err != nil {
		return err
	}
	l.pub.stopPort()
	l.count.resetPort()
	return nil
}

func (l *LIF) cmdPortSetAttr(r *request) error {
	if err := l.needPort(r); err != nil {
		return err
	}
	c, v := l.ctl.port.cfg(), r.cmd.Value()
	was := l.ctl.port.up()
	switch a := abi.PortAttr(r.cmd[2]); a {
	case abi.PortAttrState:
		if s := abi.PortAdminState(v[0]); s != abi.PortAdminDown && s != abi.PortAdminUp {
			return refuse(abi.StatusEInval, "port state %d does not exist", s)
		}
		c.SetState(abi.PortAdminState(v[0]))
	case abi.PortAttrSpeed:
		if s := le.Uint32(v); !knownSpeed(s) {
			return refuse(abi.StatusEInval, "the port cannot run at %d Mb/s", s)
		}
		c.SetSpeed(le.Uint32(v))
	case abi.PortAttrMTU:
		if mtu := le.Uint32(v); mtu < minMTU || mtu > uint32(l.cfg.MTUMax) {
			return refuse(abi.StatusERange, "port MTU %d is not within %d..%d", mtu, minMTU, l.cfg.MTUMax)
		}
		c.SetMTU(le.Uint32(v))
	case abi.PortAttrAutoneg:
		c.SetAutoneg(v[0] & 1)
	case abi.PortAttrFEC:
		if v[0] > abi.FECRS {
			return refuse(abi.StatusEInval, "FEC type %d does not exist", v[0])
		}
		c.SetFEC(v[0])
	case abi.PortAttrPause:
		if v[0]&0xf > abi.PausePFC || v[0]&^(abi.PauseTx|abi.PauseRx|0xf) != 0 {
			return refuse(abi.StatusEInval, "pause type %#x does not exist", v[0])
		}
		c.SetPause(v[0])
	case abi.PortAttrLoopback:
		if v[0] != 0 {
			return refuse(abi.StatusENoSupp, "port loopback mode %d is not supported", v[0])
		}
		c.SetLoopback(0)
	case abi.PortAttrStatsCtrl:
		l.count.resetPort()
	default:
		return refuse(abi.StatusEInval, "port attribute %d does not exist", a)
	}
	l.publishPort()
	l.linkChanged(was)
	return nil
}

// portInfo fills everything of port_info but the statistics. Holds ctl.
func (l *LIF) portInfo(b []byte) {
	copy(b[abi.PortInfoConfig:], l.ctl.port.config[:])
	l.portStatus(b)
	l.transceiver(b)
}

// portStatus fills the status of port_info. Holds ctl.
func (l *LIF) portStatus(b []byte) {
	p := &l.ctl.port
	speed := uint32(0)
	if p.up() {
		speed = p.cfg().Speed()
	}
	le.PutUint32(b[abi.PortInfoID:], 0)
	le.PutUint32(b[abi.PortInfoSpeed:], speed)
	b[abi.PortInfoOper] = byte(p.oper())
	le.PutUint16(b[abi.PortInfoLinkDownCount:], p.downCount)
	b[abi.PortInfoFEC] = p.cfg().FEC()
}

// lifStatus fills the status of lif_info. Holds ctl.
func (l *LIF) lifStatus(b []byte) {
	p := &l.ctl.port
	speed := uint32(0)
	if p.up() {
		speed = p.cfg().Speed()
	}
	le.PutUint64(b[abi.LIFInfoEID:], l.ctl.notify.sent)
	b[abi.LIFInfoPort] = 0
	le.PutUint16(b[abi.LIFInfoLinkStatus:], uint16(p.oper()))
	le.PutUint32(b[abi.LIFInfoLinkSpeed:], speed)
	le.PutUint16(b[abi.LIFInfoLinkDownCount:], p.downCount)
}

// SetLink is the operator's word: down takes the link down whatever the wire says,
// up leaves it to the wire. Without a port it never is up.
func (l *LIF) SetLink(up bool) {
	l.ctl.Lock()
	defer l.ctl.Unlock()
	was := l.ctl.port.up()
	l.ctl.port.allowed = up
	l.linkChanged(was)
}

// setWire is the port's word.
func (l *LIF) setWire(up bool, why string) {
	l.ctl.Lock()
	defer l.ctl.Unlock()
	p := &l.ctl.port
	if p.wire != up || p.why != why {
		e := l.log.Info().Str("port", l.cfg.Port.Name())
		if up {
			e.Msg("the carrier is up")
		} else {
			e.Str("reason", why).Msg("the carrier is down")
		}
	}
	was := p.up()
	p.wire, p.why = up, why
	l.linkChanged(was)
}

// Link reports whether the guest has a carrier.
func (l *LIF) Link() bool {
	l.ctl.Lock()
	defer l.ctl.Unlock()
	return l.ctl.port.up()
}

// linkChanged tells the guest if the link is not what it was: first the memory
// the driver reads, then the event that makes it look. Holds ctl.
func (l *LIF) linkChanged(was bool) {
	p := &l.ctl.port
	if p.up() == was {
		return
	}
	if was {
		p.downCount++
	}
	l.refresh()
	l.publishPort()
	l.publishLIFStatus()
	p.announce = linkReminders
	l.announceLink()
}

// announceLink sends the link state to the guest. Holds ctl.
func (l *LIF) announceLink() {
	p := &l.ctl.port
	speed := uint32(0)
	if p.up() {
		speed = p.cfg().Speed()
	}
	l.notifyLink(abi.NotifyLink{Status: p.oper(), Speed: speed})
}

// remindLink announces a recent link change again.
func (l *LIF) remindLink() {
	l.ctl.Lock()
	defer l.ctl.Unlock()
	if p := &l.ctl.port; p.announce > 0 {
		p.announce--
		l.announceLink()
	}
}
