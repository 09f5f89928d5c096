// SPDX-License-Identifier: Apache-2.0

package verbs

import (
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/ernic-dev/ernic/device/ionic/driver"
)

// Device is the RDMA device of a function. Its methods may be used from any
// goroutine.
type Device struct {
	Identity
	nic *driver.Device
	mem *driver.Memory
	eqs []*eventQueue
	aq  *adminQueue

	mu      sync.Mutex // guards the ids
	qpIDs   *queueIDs
	cqIDs   *queueIDs
	mrIDs   idSet
	ahIDs   idSet
	pids    idSet
	pdIDs   idSet
	nextKey uint8
	turn    int // engine of the next queue pair

	qps     table[QP]
	cqs     table[halfCQ]
	events  qpEvents
	strays  atomic.Uint64 // events of queues that are gone
	counter []Counter     // from STATS_HDRS

	qpCounter []Counter // from QP_STATS_HDRS
	kernel    *Context
}

// table finds objects by id.
type table[T any] struct{ m sync.Map }

func (t *table[T]) get(id uint32) *T {
	v, _ := t.m.Load(id)
	p, _ := v.(*T)
	return p
}
func (t *table[T]) set(id uint32, v *T) { t.m.Store(id, v) }
func (t *table[T]) del(id uint32)       { t.m.Delete(id) }

// Ethernet admin queue opcodes of RDMA.
const (
	opRDMAReset       = 50
	opRDMACreateEQ    = 51
	opRDMACreateCQ    = 52
	opRDMACreateAdmin = 53
)

// Reserved queue pair ids: 0 is SMI, 1 is GSI.
const reservedQPs = 2

// Open does what ionic_rdma does at probe: reset, event queues, admin queue, and
// the list of counters.
func Open(nic *driver.Device) (*Device, error) {
	id, err := parseIdentity(nic.LIFIdentity())
	if err != nil {
		return nil, err
	}
	d := &Device{Identity: id, nic: nic, mem: nic.Memory(), nextKey: 1}
	d.qpIDs = newQueueIDs(id.SQ.Count, id.UDMAShift, reservedQPs)
	d.cqIDs = newQueueIDs(id.CQ.Count, id.UDMAShift, 0)
	d.mrIDs = idSet{next: 1, top: id.MRs}
	d.ahIDs = idSet{top: id.AHs}
	d.pids = idSet{next: 1, top: nic.DoorbellPages()}
	d.pdIDs = idSet{next: 0, top: 1024}
	d.events.changed = make(chan struct{})
	for _, step := range []struct {
		what string
		do   func() error
	}{
		{"reset", d.reset},
		{"event queues", d.createEQs},
		{"admin queue", d.createAQ},
		{"counters", d.readCounterNames},
	} {
		if err := step.do(); err != nil {
			return nil, fmt.Errorf("verbs: open: %s: %w", step.what, err)
		}
	}
	d.kernel = &Context{d: d, kernel: true}
	return d, nil
}

func (d *Device) reset() error {
	_, err := d.nic.Admin(&driver.Command{opRDMAReset})
	return err
}

// Close does what ionic_rdma does at remove: one reset, after which every object
// is gone and the guest uses the memory for something else.
func (d *Device) Close() error {
	if err := d.reset(); err != nil {
		return fmt.Errorf("verbs: close: %w", err)
	}
	for _, eq := range d.eqs {
		eq.intr.Free()
		eq.ring.release()
	}
	d.qps.m.Range(func(_, v any) bool { v.(*QP).releaseMemory(); return true })
	d.cqs.m.Range(func(_, v any) bool { v.(*halfCQ).ring.release(); return true })
	d.aq.ring.release()
	d.aq.cq.release()
	return d.nic.Err()
}

// createQueue sends one of the RDMA commands of the Ethernet admin queue.
func (d *Device) createQueue(op uint8, id, cid uint32, r *ring) error {
	cmd := &driver.Command{op}
	le.PutUint32(cmd[4:], id)
	le.PutUint32(cmd[8:], cid)
	cmd[14], cmd[15] = uint8(r.depthLog2), uint8(r.strideLog2)
	le.PutUint64(cmd[16:], r.whole.IOVA)
	_, err := d.nic.Admin(cmd)
	return err
}

// NIC returns the function that the device is part of.
func (d *Device) NIC() *driver.Device { return d.nic }

// fault ends the device with a mistake that it made.
func (d *Device) fault(format string, args ...any) { d.nic.Fail(fmt.Errorf("verbs: "+format, args...)) }

// wedge ends the device: a consumer of its rings would be stuck. It returns why.
func (d *Device) wedge(format string, args ...any) error {
	err := fmt.Errorf("verbs: "+format, args...)
	d.nic.Fail(err)
	return err
}

// newKey returns the key byte of a new memory key.
func (d *Device) newKey() uint8 {
	k := d.nextKey
	d.nextKey++
	return k
}

// Context is a user of the device: the kernel, or a process with a doorbell page.
type Context struct {
	d      *Device
	pid    uint32
	kernel bool
	nextVA atomic.Uint64
}

// Kernel returns the context of the kernel's own users.
func (d *Device) Kernel() *Context { return d.kernel }

// OpenUser opens the device as a process does; no command reaches the device.
func (d *Device) OpenUser() (*Context, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	pid, err := d.pids.take()
	if err != nil {
		return nil, fmt.Errorf("verbs: doorbell pages: %w", err)
	}
	c := &Context{d: d, pid: pid}
	c.nextVA.Store(0x7f00_0000_0000 | uint64(pid)<<32)
	return c, nil
}

// Device returns the device.
func (c *Context) Device() *Device { return c.d }

// Close gives the doorbell page back.
func (c *Context) Close() {
	c.d.mu.Lock()
	defer c.d.mu.Unlock()
	c.d.pids.put(c.pid)
}

// ring writes a doorbell of this context.
func (c *Context) ring(q QueueType, id uint32, ringNo, index int) {
	c.d.nic.RingDoorbell(c.pid, q.Type, uint64(id)<<24|uint64(ringNo)<<16|uint64(index))
}

// PD is a protection domain; it exists in the driver only.
type PD struct {
	c  *Context
	ID uint32
}

// AllocPD makes a protection domain.
func (c *Context) AllocPD() (*PD, error) {
	c.d.mu.Lock()
	defer c.d.mu.Unlock()
	id, err := c.d.pdIDs.take()
	if err != nil {
		return nil, fmt.Errorf("verbs: protection domains: %w", err)
	}
	return &PD{c, id}, nil
}

// Free gives the domain's id back.
func (p *PD) Free() {
	p.c.d.mu.Lock()
	defer p.c.d.mu.Unlock()
	p.c.d.pdIDs.put(p.ID)
}
