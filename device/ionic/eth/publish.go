// SPDX-License-Identifier: Apache-2.0

package eth

import (
	"encoding/binary"
	"sync"
	"time"

	"github.com/ernic-dev/ernic/device/guestmem"
	"github.com/ernic-dev/ernic/device/ionic/abi"
)

// publisher keeps lif_info and port_info current in guest memory. The driver
// never asks for counters, it reads these blocks. One timer runs, and only while
// the guest has given a block.
type publisher struct {
	lif *LIF

	mu        sync.Mutex
	mem       *guestmem.Space
	busMaster bool
	timer     *time.Timer // nil while no block is given
	failing   bool
	lifInfo   block
	portInfo  block
	rdma      [abi.LIFStatsSize]byte
}

// block is one block of counters in guest memory.
type block struct {
	on    bool
	addr  uint64   // of the info structure
	stats uint64   // of its counters
	last  []uint64 // what stands in guest memory
	fresh bool     // nothing stands there yet
}

func (p *publisher) init(l *LIF) {
	p.lif = l
	p.lifInfo.last = make([]uint64, abi.NumLIFStats)
	p.portInfo.last = make([]uint64, abi.NumPortStats)
}

// attach changes the guest memory; both blocks are forgotten.
func (p *publisher) attach(mem *guestmem.Space) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lifInfo.on, p.portInfo.on = false, false
	p.mem = mem
	p.schedule()
}

func (p *publisher) setBusMaster(on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.busMaster = on
}

// infoAlign is what the atomic stores of counters need.
const infoAlign = 8

// start begins a block: info is stored at addr, and the counters behind it at
// once and then at each tick.
func (p *publisher) start(b *block, addr uint64, info []byte, size, stats uint64) error {
	if addr%infoAlign != 0 {
		return &guestmem.Error{Op: "write", IOVA: addr, Len: size, Reason: guestmem.Misaligned}
	}
	if err := p.mem.Check(addr, size, guestmem.Write); err != nil {
		return err
	}
	if err := p.mem.WriteAt(info, addr); err != nil {
		return err
	}
	b.on, b.addr, b.stats, b.fresh = true, addr, addr+stats, true
	p.write()
	p.schedule()
	return nil
}

func (p *publisher) startLIF(addr uint64, info []byte) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.start(&p.lifInfo, addr, info, abi.LIFInfoSize, abi.LIFInfoStats)
}

// startPort stores what comes before the counters and the module pages behind
// them. The extra statistics stay as the driver filled them.
func (p *publisher) startPort(addr uint64, info []byte) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.start(&p.portInfo, addr, info[:abi.PortInfoStats], abi.PortInfoSize, abi.PortInfoStats)
}

// stopLIF and stopPort end a block: nothing is written to it after they return.
func (p *publisher) stopLIF() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lifInfo.on = false
	p.schedule()
}

func (p *publisher) stopPort() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.portInfo.on = false
	p.schedule()
}

// store writes to a block, off bytes from its start.
func (p *publisher) store(b *block, off uint64, data []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !b.on || !p.busMaster {
		return
	}
	p.failed(p.mem.WriteAt(data, b.addr+off))
}

// storeLIFEID keeps the last event id of lif_info current.
func (p *publisher) storeLIFEID(eid uint64) {
	var w [8]byte
	binary.LittleEndian.PutUint64(w[:], eid)
	p.store(&p.lifInfo, abi.LIFInfoEID, w[:])
}

// schedule runs the timer exactly while a block is given. Holds mu.
func (p *publisher) schedule() {
	want := p.lifInfo.on || p.portInfo.on
	switch {
	case want && p.timer == nil:
		p.timer = time.AfterFunc(p.lif.cfg.StatsInterval, p.tick)
	case !want && p.timer != nil:
		p.timer.Stop()
		p.timer = nil
	}
}

// tick is the timer.
func (p *publisher) tick() {
	p.lif.remindLink()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.timer == nil {
		return // stopped while on its way here
	}
	p.write()
	p.timer.Reset(p.lif.cfg.StatsInterval)
}

// Publish writes the counters to guest memory now.
func (l *LIF) Publish() {
	l.pub.mu.Lock()
	defer l.pub.mu.Unlock()
	l.pub.write()
}

// write stores the counters that changed. Holds mu.
func (p *publisher) write() {
	if !p.busMaster || p.mem == nil {
		return
	}
	if p.lifInfo.on {
		var now [abi.NumLIFStats]uint64
		p.sumLIF(&now)
		p.failed(p.lifInfo.write(p.mem, now[:]))
	}
	if p.portInfo.on {
		var now [abi.NumPortStats]uint64
		p.lif.count.sumPort(&now)
		p.failed(p.portInfo.write(p.mem, now[:]))
	}
}

// write stores each counter that is not what stands in guest memory.
func (b *block) write(mem *guestmem.Space, now []uint64) error {
	for i, v := range now {
		if v == b.last[i] && !b.fresh {
			continue
		}
		if err := mem.StoreUint64(b.stats+8*uint64(i), v); err != nil {
			return err
		}
		b.last[i] = v
	}
	b.fresh = false
	return nil
}

// sumLIF collects the LIF block: the Ethernet counters and those of the RDMA
// half. Holds mu.
func (p *publisher) sumLIF(now *[abi.NumLIFStats]uint64) {
	if r := p.lif.cfg.RDMA; r != nil {
		clear(p.rdma[:])
		r.StatsInto(p.rdma[:])
		for i := int(abi.LIFStatEthEnd); i < len(now); i++ {
			now[i] = binary.LittleEndian.Uint64(p.rdma[8*i:])
		}
	}
	p.lif.count.sumLIF(now)
}

// failed reports the first of a series of errors.
func (p *publisher) failed(err error) {
	if err != nil && !p.failing {
		p.lif.log.Warn().Str("side", "guest").Err(err).Msg("status block cannot be written")
	}
	p.failing = err != nil
}

// publishConfig rewrites the configuration of lif_info. Holds ctl.
func (l *LIF) publishConfig() {
	var b [abi.LIFConfigSize]byte
	l.lifConfig(b[:])
	l.pub.store(&l.pub.lifInfo, abi.LIFInfoConfig, b[:])
}

// publishLIFStatus rewrites the status of lif_info. Holds ctl.
func (l *LIF) publishLIFStatus() {
	var b [abi.LIFInfoStats]byte
	l.lifStatus(b[:])
	l.pub.store(&l.pub.lifInfo, abi.LIFInfoStatus, b[abi.LIFInfoStatus:])
}

// publishPort rewrites the configuration and status of port_info. Holds ctl.
func (l *LIF) publishPort() {
	var b [abi.PortInfoXcvr]byte
	copy(b[abi.PortInfoConfig:], l.ctl.port.config[:])
	l.portStatus(b[:])
	l.pub.store(&l.pub.portInfo, 0, b[:])
}

// Stats returns the LIF and port counters by quadword number, the same values
// the guest is shown.
func (l *LIF) Stats() (lif [abi.NumLIFStats]uint64, port [abi.NumPortStats]uint64) {
	l.pub.mu.Lock()
	defer l.pub.mu.Unlock()
	l.pub.sumLIF(&lif)
	l.count.sumPort(&port)
	return lif, port
}

// CommandErrors returns how many commands of the driver were answered with an
// error since the LIF was made.
func (l *LIF) CommandErrors() uint64 { return l.count.refused.Load() }
