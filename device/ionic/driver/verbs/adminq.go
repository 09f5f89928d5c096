// SPDX-License-Identifier: Apache-2.0

package verbs

import (
	"fmt"
	"sync"
	"time"
)

// The RDMA admin queue: a ring of 512 strides of 64 bytes and 256 completions.
const (
	aqEntries    = 511
	aqStrideLog2 = 6
	aqStride     = 1 << aqStrideLog2
	aqCQEntries  = 63 + cqGrace
	aqEQ         = 2

	// watchdog is how long the driver goes without any admin completion before
	// it gives the device up.
	watchdog = 2 * time.Second
)

// Admin opcodes.
const (
	admNop         = 0
	admCreateCQ    = 1
	admCreateQP    = 2
	admCreateMR    = 3
	admStatsHdrs   = 4
	admStatsVals   = 5
	admDestroyMR   = 6
	admDestroyCQ   = 8
	admModifyQP    = 9
	admQueryQP     = 10
	admDestroyQP   = 11
	admCreateAH    = 13
	admDestroyAH   = 16
	admQPStatsHdrs = 17
	admQPStatsVals = 18
)

var adminStatusNames = [...]string{"OK", "BAD_CMD", "BAD_INDEX", "BAD_STATE", "BAD_TYPE", "BAD_ATTR", "MSG_TOO_BIG"}

// AdminError is an admin command that the device refused.
type AdminError struct {
	Op     uint8
	Status uint32
}

func (e *AdminError) Error() string {
	name := "unknown status"
	if int(e.Status) < len(adminStatusNames) {
		name = adminStatusNames[e.Status]
	}
	return fmt.Sprintf("verbs: admin command %d refused: %s (%d)", e.Op, name, e.Status)
}

// adminQueue is the RDMA admin queue and its completion queue.
type adminQueue struct {
	d    *Device
	id   uint32
	cqID uint32
	ring *ring
	cq   *ring

	mu      sync.Mutex // guards what follows
	prod    int
	cons    int
	next    int // completion to read
	colour  uint32
	armed   int
	pending []adminCommand // oldest first
}

type adminCommand struct {
	index, strides int
	op             uint8
	done           chan error
}

func (d *Device) createAQ() (err error) {
	q := &adminQueue{d: d, id: d.AQ.Base, colour: 1}
	if q.cqID, err = d.cqIDs.take(0); err != nil {
		return err
	}
	if q.cq, err = newRing(d.mem, aqCQEntries, cqStrideLog2, true); err != nil {
		return err
	}
	if q.ring, err = newRing(d.mem, aqEntries, aqStrideLog2, true); err != nil {
		return err
	}
	d.aq = q
	if err := d.createQueue(opRDMACreateCQ, q.cqID, aqEQ, q.cq); err != nil {
		return err
	}
	if err := d.createQueue(opRDMACreateAdmin, q.id, q.cqID, q.ring); err != nil {
		return err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.arm()
	return nil
}

func (q *adminQueue) arm() {
	q.armed = q.cq.next(q.armed)
	q.d.doorbell(q.d.CQ, q.cqID, ringArm, q.armed)
}

// doorbell rings a queue of the kernel.
func (d *Device) doorbell(q QueueType, id uint32, ringNo, index int) {
	d.nic.RingDoorbell(0, q.Type, uint64(id)<<24|uint64(ringNo)<<16|uint64(index))
}

// command runs one admin command. body is the part after the 4-byte header.
func (d *Device) command(op uint8, body []byte) error {
	if op >= d.AdminOpcodes {
		return fmt.Errorf("verbs: admin command %d is not among the device's %d", op, d.AdminOpcodes)
	}
	q := d.aq
	strides := (len(body) + 4 + aqStride - 1) / aqStride
	cmd := adminCommand{strides: strides, op: op, done: make(chan error, 1)}

	q.mu.Lock()
	if err := d.nic.Err(); err != nil {
		q.mu.Unlock()
		return err
	}
	if room := q.ring.mask - (q.prod-q.cons)&q.ring.mask; room < strides {
		q.mu.Unlock()
		return fmt.Errorf("verbs: admin queue is full")
	}
	cmd.index = q.prod
	wqe := append([]byte{op, 0, byte(len(body)), byte(len(body) >> 8)}, body...)
	for len(wqe) > 0 {
		wqe = wqe[copy(q.ring.at(q.prod), wqe):]
		q.prod = q.ring.next(q.prod)
	}
	q.pending = append(q.pending, cmd)
	d.doorbell(d.AQ, q.id, 0, q.prod)
	q.mu.Unlock()

	timer := time.NewTimer(d.nic.Timeout(watchdog))
	defer timer.Stop()
	select {
	case err := <-cmd.done:
		return err
	case <-timer.C:
		return d.wedge("admin command %d was not completed in %v: the driver resets RDMA for good", op, d.nic.Timeout(watchdog))
	case <-d.nic.Failed():
		return d.nic.Err()
	}
}

// notified takes the completions after an event and arms again.
func (q *adminQueue) notified() {
	q.mu.Lock()
	defer q.mu.Unlock()
	n := 0
	for ; ; n++ {
		qtf := q.cq.lastWord(q.next)
		if qtf&cqeColour != q.colour {
			break
		}
		q.complete(q.cq.at(q.next), qtf)
		if q.next = q.cq.next(q.next); q.next == 0 {
			q.colour ^= 1
		}
	}
	if n > 0 {
		q.d.doorbell(q.d.CQ, q.cqID, 0, q.next)
		q.arm()
	}
}

// complete takes one completion, which must be that of the oldest command.
func (q *adminQueue) complete(cqe []byte, qtf uint32) {
	index, op := int(be.Uint16(cqe)), cqe[2]
	switch {
	case qtf>>8 != q.id || qtf>>5&7 != cqeAdmin:
		q.d.fault("admin queue %d: completion has queue id %d and type %d: the driver throws it away", q.id, qtf>>8, qtf>>5&7)
		return
	case len(q.pending) == 0 || q.pending[0].index != index:
		q.d.fault("admin queue %d: completion has index %d, the oldest command is at %d: the driver throws it away", q.id, index, q.cons)
		return
	case q.pending[0].op != op:
		q.d.fault("admin queue %d: completion of command %d echoes %d", q.id, q.pending[0].op, op)
		return
	}
	cmd := q.pending[0]
	q.pending = q.pending[1:]
	q.cons = (q.cons + cmd.strides) & q.ring.mask
	var err error
	status := be.Uint32(cqe[24:])
	if qtf&cqeError != 0 {
		err = &AdminError{cmd.op, status}
	} else if status != 0 {
		q.d.fault("admin command %d: status %d without the error bit", cmd.op, status)
	}
	cmd.done <- err
}
