// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"fmt"
	"sync"
	"sync/atomic"
)

// Q_CONTROL operations.
const (
	queueDisable = 0
	queueEnable  = 1
)

// ethernet is the netdev's half of the device.
type ethernet struct {
	up atomic.Bool

	mu      sync.Mutex // guards what follows, and ifup against ifdown
	pairs   []*queuePair
	enabled bool
	ring    int

	receive atomic.Pointer[func(Packet)]
}

// queuePair is a transmit and a receive queue that share a vector.
type queuePair struct {
	d     *Device
	index int
	intr  *Intr
	tx    txQueue
	rx    rxQueue
}

// Packet is a received frame.
type Packet struct {
	Queue     int
	Data      []byte // without FCS; owned by the receiver
	Hash      uint32
	Type      uint8 // packet type of the completion
	Csum      uint16
	CsumValid bool
	VLAN      uint16
	Tagged    bool // a VLAN tag was stripped
}

// OnReceive sets the function that gets received frames. It is called from the
// goroutine of the queue's vector.
func (d *Device) OnReceive(f func(Packet)) { d.eth.receive.Store(&f) }

// Up brings the netdev up with a number of queue pairs and entries a ring, as
// ionic_open does. Queues are enabled at once if there is a carrier, else with
// EnableQueues when it comes.
func (d *Device) Up(pairs, ringSize int) error {
	e := &d.eth
	e.mu.Lock()
	defer e.mu.Unlock()
	if pairs < 1 || pairs > d.sizes.QueuePairs {
		return fmt.Errorf("driver: %d queue pairs, the device has vectors for %d", pairs, d.sizes.QueuePairs)
	}
	if ringSize < 4 || ringSize > 16384 || ringSize&(ringSize-1) != 0 {
		return fmt.Errorf("driver: ring size %d is not a power of two in 4..16384", ringSize)
	}
	e.ring = ringSize
	for i := range pairs {
		p := &queuePair{d: d, index: i}
		intr, err := d.AllocIntr(p.poll)
		if err != nil {
			return err
		}
		p.intr = intr
		intr.SetMaskAssert()
		if err := intr.Request(); err != nil {
			return err
		}
		intr.SetCoalesce(d.coalesce(64))
		e.pairs = append(e.pairs, p)
	}
	for _, p := range e.pairs {
		if err := p.tx.init(p); err != nil {
			return fmt.Errorf("driver: transmit queue %d: %w", p.index, err)
		}
		if err := p.rx.init(p); err != nil {
			return fmt.Errorf("driver: receive queue %d: %w", p.index, err)
		}
	}
	if d.feature&FeatureRxHash != 0 {
		table := make([]byte, le.Uint16(d.identity.lif[lifRSSTable:]))
		for i := range table {
			table[i] = byte(i % pairs)
		}
		if err := d.setRSS(0x3f, table); err != nil {
			return err
		}
	}
	if err := d.SetRxMode(RxUnicast | RxMulticast | RxBroadcast); err != nil {
		return err
	}
	e.up.Store(true)
	if d.LinkUp() {
		return d.enableLocked()
	}
	return nil
}

// EnableQueues starts the queues after the carrier came.
func (d *Device) EnableQueues() error {
	d.eth.mu.Lock()
	defer d.eth.mu.Unlock()
	return d.enableLocked()
}

func (d *Device) enableLocked() error {
	for _, p := range d.eth.pairs {
		p.rx.fill()
		p.intr.CleanCredits()
		if err := d.queueControl(queueRx, p.index, queueEnable); err != nil {
			return err
		}
		p.intr.Unmask()
		if err := d.queueControl(queueTx, p.index, queueEnable); err != nil {
			return err
		}
	}
	d.eth.enabled = true
	return nil
}

// DisableQueues stops the queues and keeps them initialised, as at the loss of
// the carrier.
func (d *Device) DisableQueues() error {
	d.eth.mu.Lock()
	defer d.eth.mu.Unlock()
	return d.disableLocked()
}

func (d *Device) disableLocked() error {
	for _, p := range d.eth.pairs {
		if err := d.queueControl(queueTx, p.index, queueDisable); err != nil {
			return err
		}
	}
	for _, p := range d.eth.pairs {
		p.intr.Mask()
		if err := d.queueControl(queueRx, p.index, queueDisable); err != nil {
			return err
		}
	}
	d.eth.enabled = false
	if _, err := d.Admin(&Command{opLIFSetAttr, attrState}); err != nil {
		return fmt.Errorf("driver: quiesce: %w", err)
	}
	return nil
}

// Down takes the netdev down; the device touches no memory of the queues after it.
func (d *Device) Down() error {
	e := &d.eth
	e.mu.Lock()
	defer e.mu.Unlock()
	e.up.Store(false)
	if err := d.disableLocked(); err != nil {
		return err
	}
	for _, p := range e.pairs {
		p.intr.Free()
		p.tx.free(d.mem)
		p.rx.free(d.mem)
	}
	e.pairs = nil
	return nil
}

// SetMTU changes the MTU of a netdev that is down.
func (d *Device) SetMTU(mtu int) error {
	if d.eth.up.Load() {
		return fmt.Errorf("driver: MTU of a netdev that is up")
	}
	cmd := &Command{opLIFSetAttr, attrMTU}
	le.PutUint32(cmd[4:], uint32(mtu))
	if _, err := d.Admin(cmd); err != nil {
		return fmt.Errorf("driver: MTU %d: %w", mtu, err)
	}
	d.options.MTU = mtu
	return nil
}

func (d *Device) queueControl(queueType uint8, index, oper int) error {
	cmd := &Command{opQControl, queueType}
	le.PutUint32(cmd[4:], uint32(index))
	cmd[8] = uint8(oper)
	if _, err := d.Admin(cmd); err != nil {
		return fmt.Errorf("driver: control queue type %d index %d: %w", queueType, index, err)
	}
	return nil
}

// Budgets of one poll (ionic_txrx_napi).
const (
	txBudget = 256
	rxBudget = 64
)

// poll is the handler of a queue pair's vector.
func (p *queuePair) poll() {
	for {
		tx := p.tx.service(txBudget)
		rx := p.rx.service(rxBudget)
		if rx < rxBudget {
			p.intr.ReturnCredits(tx+rx, CreditUnmask|CreditResetCoalesce)
			return
		}
		p.intr.ReturnCredits(tx+rx, CreditResetCoalesce)
		if p.d.Err() != nil {
			return
		}
	}
}

func (d *Device) pair(queue int) (*queuePair, error) {
	d.eth.mu.Lock()
	defer d.eth.mu.Unlock()
	if queue < 0 || queue >= len(d.eth.pairs) {
		return nil, fmt.Errorf("driver: no queue pair %d", queue)
	}
	return d.eth.pairs[queue], nil
}

func log2(n int) uint8 {
	var l uint8
	for 1<<l < n {
		l++
	}
	return l
}
