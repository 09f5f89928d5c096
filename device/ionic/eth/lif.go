// SPDX-License-Identifier: Apache-2.0

package eth

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"github.com/ernic-dev/ernic/device/guestmem"
	"github.com/ernic-dev/ernic/device/ionic/abi"
	"github.com/ernic-dev/ernic/device/ionic/eth/learn"
	"github.com/ernic-dev/ernic/device/netport"
)

// LIF is the logical interface and its port.
type LIF struct {
	cfg      Config
	maxFrame int // bytes, without FCS
	log      zerolog.Logger
	observer *learn.Observer // nil without Config.Observer
	// offloader is the port if frames may be passed on unfinished, nil otherwise.
	offloader netport.Offloader

	tx    []*txQueue
	rx    []*rxQueue
	admin adminQueue

	view  atomic.Pointer[rxView] // what the receive path decides by
	own   atomic.Pointer[ownMACs]
	pub   publisher
	count counters

	done    chan struct{} // closed by Close
	workers sync.WaitGroup

	// ctl guards what commands change.
	ctl struct {
		sync.Mutex
		mem       *guestmem.Space // nil while no client is attached
		busMaster bool
		closed    bool
		inited    bool // between LIF_INIT and LIF_RESET
		quiesced  bool
		mac       [6]byte
		name      [abi.LIFNameLen]byte
		mtu       uint32
		features  abi.Features
		mode      abi.RxMode
		filters   filterTable
		rss       rssState
		notify    notifyQueue
		port      portState
	}
}

// New checks the configuration and returns a LIF in reset state. The receive
// goroutines run until Close.
func New(c Config) (*LIF, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	l := &LIF{
		cfg:      c,
		maxFrame: c.MTUMax + frameOverhead,
		log:      c.Log.Sample(&zerolog.BurstSampler{Burst: 20, Period: time.Second}),
		done:     make(chan struct{}),
	}
	if c.Observer != nil {
		l.observer = learn.New(c.Observer.AddressSeen)
	}
	l.pub.init(l)
	readers := 0
	if c.Port != nil {
		readers = c.Port.Queues()
	}
	l.count.init(c.Queues, readers)
	for i := range c.Queues {
		l.tx = append(l.tx, newTxQueue(l, i))
		l.rx = append(l.rx, newRxQueue(l, i))
	}
	l.admin.wake = make(chan struct{}, 1)
	if c.Offload&(abi.FeatureTxCsum|abi.FeatureTSO|abi.FeatureTSOIPv6) != 0 {
		l.offloader, _ = c.Port.(netport.Offloader)
	}
	carrier, watched := c.Port.(netport.Carrier)
	l.ctl.port.wire = c.Port != nil && !watched
	l.ctl.port.allowed = true
	l.ctl.Lock()
	l.deviceReset()
	l.ctl.Unlock()
	l.workers.Go(l.serveAdmin)
	for q := range readers {
		l.workers.Go(func() { l.receiveLoop(q) })
	}
	if watched {
		carrier.Watch(l.setWire)
	}
	return l, nil
}

// Attach begins the life of a new guest: mem reaches its memory.
func (l *LIF) Attach(mem *guestmem.Space) {
	l.ctl.Lock()
	defer l.ctl.Unlock()
	l.deviceReset()
	l.ctl.mem = mem
	l.admin.heard = false
	l.admin.apart.Store(false)
	l.pub.attach(mem)
}

// Detach ends it. No goroutine touches guest memory after it returns.
func (l *LIF) Detach() {
	l.ctl.Lock()
	defer l.ctl.Unlock()
	l.deviceReset()
	l.ctl.mem = nil
	l.pub.attach(nil)
}

// Reset is a device reset or a function-level reset: everything the guest set up
// is forgotten and all DMA has stopped when it returns.
func (l *LIF) Reset() {
	l.ctl.Lock()
	defer l.ctl.Unlock()
	l.deviceReset()
}

// BusMaster follows COMMAND bit 2. While it is off there is no DMA and no
// interrupt; queues keep their state and go on when it comes back.
func (l *LIF) BusMaster(on bool) {
	l.ctl.Lock()
	defer l.ctl.Unlock()
	l.ctl.busMaster = on
	l.pub.setBusMaster(on)
	for i := range l.tx {
		l.tx[i].setDMA(on)
		l.rx[i].setDMA(on)
	}
	l.cfg.Bank.SetOpen(on)
	if on {
		l.admin.kick()
	}
}

// Close ends every goroutine of the LIF and closes its port.
func (l *LIF) Close() error {
	l.ctl.Lock()
	if l.ctl.closed {
		l.ctl.Unlock()
		return nil
	}
	l.ctl.closed = true
	l.deviceReset()
	l.ctl.mem = nil
	l.pub.attach(nil)
	close(l.done)
	l.ctl.Unlock()
	var err error
	if l.cfg.Port != nil {
		err = l.cfg.Port.Close()
	}
	l.workers.Wait()
	return err
}

// Doorbell takes one write of the driver to slot qtype of doorbell page 0. It
// runs on the goroutine that serves the guest: it records the index and hands
// over.
func (l *LIF) Doorbell(qtype abi.QType, d abi.Doorbell) {
	qid := d.QID()
	switch qtype {
	case abi.QTypeAdmin:
		if qid == 0 && d.Ring() == 0 {
			l.admin.prod.Store(uint32(d.Index()))
			l.admin.kick()
		}
	case abi.QTypeTx:
		if qid >= uint32(len(l.tx)) || !l.tx[qid].ready() {
			l.count.control().lif[abi.TxQueueDisabled].Add(1)
			return
		}
		if d.Ring() != 0 {
			l.count.control().lif[abi.TxQueueError].Add(1)
			return
		}
		l.tx[qid].doorbell(uint32(d.Index()))
	case abi.QTypeRx:
		if qid >= uint32(len(l.rx)) || !l.rx[qid].ready() || d.Ring() != 0 {
			l.count.control().lif[abi.RxQueueError].Add(1)
			return
		}
		l.rx[qid].doorbell(uint32(d.Index()))
	}
}

// deviceReset is RESET, FLR, attach and detach. Holds ctl.
func (l *LIF) deviceReset() {
	l.lifReset()
	l.pub.stopPort()
	l.resetPort()
	l.count.reset()
}

// lifReset stops and forgets all that belongs to the LIF. It serves a LIF that
// was never initialised, too. Holds ctl.
func (l *LIF) lifReset() {
	c := &l.ctl
	c.inited = false
	for i := range l.tx {
		l.tx[i].clear()
		l.rx[i].clear()
	}
	l.admin.clear()
	c.notify = notifyQueue{}
	l.pub.stopLIF()
	if l.cfg.RDMA != nil {
		l.cfg.RDMA.Reset()
	}
	l.cfg.Bank.ResetAll()
	l.dropFilters()
	c.quiesced = false
	c.mac, c.mtu, c.name = l.cfg.MAC, defaultMTU, [abi.LIFNameLen]byte{}
	c.features, c.mode, c.rss = 0, 0, rssState{}
	if l.observer != nil {
		l.observer.Forget()
	}
	l.refresh()
}

// defaultMTU is the MTU the identity reports; the netdev starts with it.
const defaultMTU = 1500
